//! Untrusted input of `gpuprobe serve`: for the fuzz target, and for the test that replays its findings. Errors are
//! expected; a panic or a hang is a bug. No part of the program.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use gpuprobe_report::metrics::MetricLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::timeout;

use super::documents::{DocumentRequest, Documents};
use super::http::Site;
use super::{Listen, ServeConfig, connections};

/// Nothing takes longer.
const LIMIT: Duration = Duration::from_secs(10);
/// Maximum bytes of answers that are looked at.
const ANSWERS: usize = 1 << 20;

/// Effects of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    /// Answers that a client got.
    pub answers: usize,
    /// Documents that the event loop was asked for on its behalf.
    pub documents: usize,
}

/// Takes `bytes` for all that comes from elsewhere: the first two are the length of what a client sends, behind
/// which is a document of the event loop.
///
/// # Errors
/// Returns the system's error if no connection can be made, or `TimedOut` if an answer takes too long.
pub fn try_requests(bytes: &[u8]) -> io::Result<Tried> {
    let (length, rest) = bytes.split_at(bytes.len().min(2));
    let length = length
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let (request, document) = rest.split_at(length.min(rest.len()));
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let answered = async { timeout(LIMIT, answered(request, document)).await };
    runtime.block_on(answered)?
}

/// Sends `request` to a server whose documents are all `document`, and counts the answers.
async fn answered(request: &[u8], document: &[u8]) -> io::Result<Tried> {
    let (sender, requests) = channel(1);
    let tracing = tokio::spawn(trace(requests, document.to_vec()));
    let config = ServeConfig {
        listen: Listen::Ip(([127, 0, 0, 1], 9477).into()),
        tls: None,
        token: None,
        snapshots: true,
        limits: MetricLimits::default(),
    };
    let site = Arc::new(Site::new(&config, Documents::new(sender)));
    let (client, server) = duplex(ANSWERS);
    let serving = tokio::spawn(connections::serve(Box::new(server), None, site));
    let (mut reader, mut writer) = tokio::io::split(client);
    // The server may have closed the connection.
    let _ = writer.write_all(request).await;
    let _ = writer.shutdown().await;
    let mut answers = Vec::new();
    let _ = (&mut reader)
        .take(ANSWERS as u64)
        .read_to_end(&mut answers)
        .await;
    drop((reader, writer));
    serving.await?;
    let documents = tracing.await?;
    let begins = answers
        .windows(9)
        .filter(|part| part.starts_with(b"HTTP/1."));
    Ok(Tried {
        answers: begins.count(),
        documents,
    })
}

/// The event loop. Returns the number of documents it was asked for.
async fn trace(mut requests: Receiver<DocumentRequest>, document: Vec<u8>) -> usize {
    let mut asked = 0;
    while let Some(request) = requests.recv().await {
        asked += 1;
        let _ = request.answer.send(Ok(document.clone()));
    }
    asked
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
#[path = "../../tests/untrusted/corpus.rs"]
mod corpus;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::LazyLock;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::corpus::{inputs, replay};
    use super::*;

    /// What clients send.
    #[test]
    fn the_corpus_is_answered() {
        let tried = replay("requests", |bytes| try_requests(bytes).unwrap());
        let sum = |count: fn(&Tried) -> usize| -> usize { tried.iter().map(count).sum() };
        let [answers, documents] = [sum(|one| one.answers), sum(|one| one.documents)];
        assert!(
            answers > 10 && documents > 3,
            "{answers} answers, {documents} documents"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_requests(
            which in any::<usize>(),
            changes in vec((any::<usize>(), any::<u8>(), 1..4usize), 0..16),
        ) {
            static SEEDS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
                inputs("requests").into_iter().map(|input| input.bytes).collect()
            });
            let mut bytes = SEEDS[which % SEEDS.len()].clone();
            for (at, byte, count) in changes {
                let at = at % bytes.len().max(1);
                let end = (at + count).min(bytes.len());
                bytes[at..end].fill(byte);
            }
            try_requests(&bytes).unwrap();
        }
    }
}
