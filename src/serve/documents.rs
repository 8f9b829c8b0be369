//! Documents of the event loop, each kept for a moment.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::body::Bytes;
use tokio::sync::mpsc::Sender;
use tokio::sync::{Mutex, oneshot};

/// How long a document is served to further clients.
const KEPT_FOR: Duration = Duration::from_millis(500);

/// A document that the event loop is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// PyTorch's memory in a process, pickle.
    Snapshot(u32),
}

/// Why there is no document: the status, and the reason if there is one beside it.
pub(crate) type Refusal = (StatusCode, Option<String>);

/// A document, or why there is none.
pub(crate) type Answer = Result<Vec<u8>, Refusal>;

/// The document may be there later.
pub(crate) fn unavailable(why: &(impl ToString + ?Sized)) -> Refusal {
    (StatusCode::SERVICE_UNAVAILABLE, Some(why.to_string()))
}

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
    kept: Mutex<HashMap<ServedDocument, (Instant, Bytes)>>,
}

impl Documents {
    /// Documents of whoever receives `requests`.
    pub(super) fn new(requests: Sender<DocumentRequest>) -> Self {
        Self {
            requests,
            kept: Mutex::default(),
        }
    }

    /// The bytes of `document`.
    pub(super) async fn get(&self, document: ServedDocument) -> Result<Bytes, Refusal> {
        let over = || unavailable("the session has ended");
        let mut kept = self.kept.lock().await;
        kept.retain(|_, (since, _)| since.elapsed() <= KEPT_FOR);
        if let Some((_, bytes)) = kept.get(&document) {
            return Ok(bytes.clone());
        }
        let (answer, answered) = oneshot::channel();
        let request = DocumentRequest { document, answer };
        self.requests.send(request).await.map_err(|_| over())?;
        let bytes: Bytes = answered.await.map_err(|_| over())??.into();
        kept.insert(document, (Instant::now(), bytes.clone()));
        Ok(bytes)
    }
}
