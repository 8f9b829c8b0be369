//! Metrics for `POST /v1/metrics` of OTLP/HTTP, protobuf.

use std::io::{self, Write};
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::time::Interval;

use super::super::asking::Documents;
use super::super::protocol::ServedDocument;
use super::PushSettings;
use super::client::{PushClient, PushedDocument};
use super::outcome::PushOutcomes;

/// Pushes metrics to one server. Sums are cumulative, so that the next push makes up for one that fails.
pub(super) struct MetricPush {
    client: PushClient,
    outcomes: PushOutcomes,
}

impl MetricPush {
    pub(super) fn new(client: PushClient, settings: &PushSettings) -> Self {
        let outcomes = PushOutcomes::new("metrics", &client.url, settings.has_said);
        Self { client, outcomes }
    }

    /// Pushes at each tick, until the host is to be looked up again.
    pub(super) async fn until_unreachable(
        mut self,
        documents: &Arc<Documents>,
        mut ticks: Interval,
    ) {
        loop {
            ticks.tick().await;
            let Ok(bytes) = documents.get(ServedDocument::Otlp, false).await else {
                continue;
            };
            let Ok(body) = packed(&bytes) else {
                continue;
            };
            let pushed = self.client.push(PushedDocument {
                path: self.client.url.path_of("/v1/metrics"),
                content_type: "application/x-protobuf",
                is_gzip: true,
                body,
            });
            let outcome = pushed.await;
            if self.outcomes.note(&outcome) {
                return;
            }
        }
    }
}

/// `bytes`, compressed.
fn packed(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes)?;
    packed.finish()
}
