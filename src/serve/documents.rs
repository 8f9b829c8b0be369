//! Documents of the event loop, each kept for a moment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use tokio::sync::mpsc::Sender;
use tokio::sync::{Mutex, oneshot};

use gpuprobe_views::metrics;

/// How long a document is served to further clients.
const KEPT_FOR: Duration = Duration::from_millis(500);

/// A document that the event loop is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServedDocument {
    /// Nothing: that there is an answer says that tracing goes on.
    Ready,
    /// The page of now, HTML.
    Page,
    /// Metrics, in the text format of `OpenMetrics`.
    Metrics,
    /// The live report, JSON.
    Report,
    /// The live explanation, JSON.
    Explain,
    /// Profile of live memory, pprof.
    InUse,
    /// Profile of all memory ever allocated, pprof.
    Allocated,
    /// Profile of launches by kernel, pprof.
    Launches,
}

/// Their number.
const DOCUMENTS: usize = ServedDocument::Launches as usize + 1;

/// An answer: a document, or the reason why there is none.
pub(crate) type Answer = Result<Vec<u8>, String>;

/// A request to the event loop.
pub(crate) struct DocumentRequest {
    /// The wanted document.
    pub(crate) document: ServedDocument,
    answer: oneshot::Sender<Answer>,
}

impl DocumentRequest {
    /// Answers it, without waiting for anything.
    pub(crate) fn answer(self, answer: Answer) {
        let _ = self.answer.send(answer);
    }
}

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
    requests: Sender<DocumentRequest>,
    kept: [Mutex<Option<Kept>>; DOCUMENTS],
}

impl Documents {
    /// Documents of whoever receives `requests`.
    pub(super) fn new(requests: Sender<DocumentRequest>) -> Self {
        Self {
            requests,
            kept: Default::default(),
        }
    }

    /// The bytes of `document`; of metrics, in the older text format with `older`. Whether the client stays
    /// does not matter: the answer is for others, too.
    pub(super) async fn get(
        self: &Arc<Self>,
        document: ServedDocument,
        older: bool,
    ) -> Result<Bytes, String> {
        let this = Arc::clone(self);
        let asking = tokio::spawn(async move {
            let mut kept = this.kept[document as usize].lock().await;
            let is_new = |kept: &Kept| kept.since.elapsed() <= KEPT_FOR;
            let new = match kept.take().filter(is_new) {
                Some(new) => new,
                None => this.ask(document).await?,
            };
            let new = kept.insert(new);
            Ok(match older {
                false => new.bytes.clone(),
                true => new.older().clone(),
            })
        });
        asking.await.map_err(|error| error.to_string())?
    }

    async fn ask(&self, document: ServedDocument) -> Result<Kept, String> {
        let over = || "the session has ended".to_owned();
        let (answer, answered) = oneshot::channel();
        let request = DocumentRequest { document, answer };
        self.requests.send(request).await.map_err(|_| over())?;
        Ok(Kept {
            bytes: answered.await.map_err(|_| over())??.into(),
            older: None,
            since: Instant::now(),
        })
    }
}
