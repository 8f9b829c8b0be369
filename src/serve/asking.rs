//! Documents of the tracing process, each kept for a moment.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::Mutex;

use super::protocol::{FAILED, LAST, MORE, ServedDocument};
use gpuprobe_views::metrics;

/// How long a document is served to further clients.
const KEPT_FOR: Duration = Duration::from_millis(500);
/// Maximum bytes of a document.
const MAX_BYTES: usize = 64 << 20;

/// A document, and its other form.
#[derive(Clone, Debug)]
struct Kept {
    bytes: Bytes,
    /// Metrics in the older text format, once a client has asked for it.
    older: Option<Bytes>,
    since: Instant,
}

impl Kept {
    fn older(&mut self) -> &Bytes {
        self.older.get_or_insert_with(|| {
            let text = String::from_utf8_lossy(&self.bytes);
            metrics::prometheus(&text).into()
        })
    }
}

/// Asks for documents. Who asks for one that another is waiting for gets the same.
pub(super) struct Documents {
    channel: Mutex<UnixStream>,
    kept: [Mutex<Option<Kept>>; ServedDocument::ALL.len()],
}

impl Documents {
    /// Documents from the process at the other end of a non-blocking `channel`.
    pub(super) fn new(channel: OwnedFd) -> io::Result<Self> {
        let channel = std::os::unix::net::UnixStream::from(channel);
        Ok(Self {
            channel: Mutex::new(UnixStream::from_std(channel)?),
            kept: Default::default(),
        })
    }

    /// The bytes of `document`; of metrics, in the older text format with `older`. Whether the client stays
    /// does not matter: the answer is for others, too.
    pub(super) async fn get(
        self: &Arc<Self>,
        document: ServedDocument,
        older: bool,
    ) -> io::Result<Bytes> {
        let this = Arc::clone(self);
        let asking = tokio::spawn(async move {
            let mut kept = this.kept[document as usize].lock().await;
            let kept = this.fresh(document, &mut kept).await?;
            Ok(match older {
                false => kept.bytes.clone(),
                true => kept.older().clone(),
            })
        });
        asking.await.map_err(io::Error::other)?
    }

    async fn fresh<'a>(
        &self,
        document: ServedDocument,
        kept: &'a mut Option<Kept>,
    ) -> io::Result<&'a mut Kept> {
        let is_old = |kept: &Kept| kept.since.elapsed() > KEPT_FOR;
        if kept.as_ref().is_none_or(is_old) {
            let bytes = self.ask(document).await?;
            *kept = Some(Kept {
                bytes: bytes.into(),
                older: None,
                since: Instant::now(),
            });
        }
        kept.as_mut().ok_or_else(|| ErrorKind::NotFound.into())
    }

    async fn ask(&self, document: ServedDocument) -> io::Result<Vec<u8>> {
        let mut channel = Exchange(self.channel.lock().await, false);
        let answer = channel.ask(document).await?;
        channel.1 = true;
        answer.map_err(io::Error::other)
    }
}

/// A request and its answer. After an error in between, the next answer could be taken for this one: the
/// process ends, and the tracing process starts another.
struct Exchange<'a>(tokio::sync::MutexGuard<'a, UnixStream>, bool);

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        if !self.1 {
            std::process::exit(1);
        }
    }
}

impl Exchange<'_> {
    async fn ask(&mut self, document: ServedDocument) -> io::Result<Result<Vec<u8>, String>> {
        let request = serde_json::to_vec(&document)?;
        let length = u32::try_from(request.len()).unwrap_or(0).to_le_bytes();
        self.0.write_all(&[&length[..], &request].concat()).await?;
        read_answer(&mut *self.0).await
    }
}

/// Reads an answer of the tracing process: a document, or the reason why there is none.
///
/// # Errors
/// Returns `InvalidData` if it is malformed or too large, or the system's error.
pub(super) async fn read_answer(
    from: &mut (impl AsyncRead + Unpin),
) -> io::Result<Result<Vec<u8>, String>> {
    let mut answer = Vec::new();
    loop {
        let length = from.read_u32_le().await?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length == 0 || length > MAX_BYTES - answer.len().min(MAX_BYTES) {
            return Err(ErrorKind::InvalidData.into());
        }
        let kind = from.read_u8().await?;
        let whole = answer.len() + length - 1;
        let part = &mut (&mut *from).take(length as u64 - 1);
        part.read_to_end(&mut answer).await?;
        if answer.len() < whole {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        match kind {
            MORE => {}
            LAST => return Ok(Ok(answer)),
            FAILED => return Ok(Err(String::from_utf8_lossy(&answer).into_owned())),
            _ => return Err(ErrorKind::InvalidData.into()),
        }
    }
}
