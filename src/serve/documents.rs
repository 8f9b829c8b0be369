//! Documents of the event loop, each kept for a moment.

use std::time::{Duration, Instant};

use hyper::body::Bytes;
use tokio::sync::mpsc::Sender;
use tokio::sync::{Mutex, oneshot};

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
    /// Where its answer goes.
    pub(crate) answer: oneshot::Sender<Answer>,
}

/// Asks for documents. Who asks for one that another is waiting for gets the same.
pub(super) struct Documents {
    requests: Sender<DocumentRequest>,
    kept: [Mutex<Option<(Instant, Bytes)>>; DOCUMENTS],
}

impl Documents {
    /// Documents of whoever receives `requests`.
    pub(super) fn new(requests: Sender<DocumentRequest>) -> Self {
        Self {
            requests,
            kept: Default::default(),
        }
    }

    /// The bytes of `document`.
    pub(super) async fn get(&self, document: ServedDocument) -> Result<Bytes, String> {
        let over = || "the session has ended".to_owned();
        let mut kept = self.kept[document as usize].lock().await;
        if let Some((since, bytes)) = &*kept
            && since.elapsed() <= KEPT_FOR
        {
            return Ok(bytes.clone());
        }
        let (answer, answered) = oneshot::channel();
        let request = DocumentRequest { document, answer };
        self.requests.send(request).await.map_err(|_| over())?;
        let bytes: Bytes = answered.await.map_err(|_| over())??.into();
        *kept = Some((Instant::now(), bytes.clone()));
        Ok(bytes)
    }
}
