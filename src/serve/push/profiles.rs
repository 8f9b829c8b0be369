//! Profiles for Pyroscope's `POST /ingest`, in pprof.
//!
//! Pyroscope adds up what it gets: what is counted since the start (`alloc_*`, launches) is pushed as the difference to
//! the last push that arrived.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use tokio::time::Interval;

use super::super::asking::Documents;
use super::super::protocol::ServedDocument;
use super::PushSettings;
use super::client::{PushClient, PushError, PushedDocument};
use super::outcome::PushOutcomes;
use gpuprobe_report::profile::pprof::{self, CountedSince};

/// Profiles, and the types of their values that are not pushed.
const PROFILES: [ServedDocument; 2] = [ServedDocument::Allocated, ServedDocument::Launches];

/// Success of a push.
enum Pushed {
    Profile,
    /// There was no sample.
    Nothing,
}

/// Pushes profiles to one server.
pub(super) struct ProfilePush {
    client: PushClient,
    outcomes: PushOutcomes,
    /// The application's name and labels, escaped.
    name: String,
    /// For each of [`PROFILES`], counts of the last push and its time, seconds since 1970.
    known: [(Option<CountedSince>, u64); PROFILES.len()],
}

impl ProfilePush {
    pub(super) fn new(client: PushClient, settings: &PushSettings) -> Self {
        // After a restart, what was pushed before is not known: the first profile is what others are compared with.
        let first = (!settings.is_again).then(CountedSince::default);
        let host: String = settings.host.chars().filter(|c| is_plain(*c)).collect();
        let now = unix_seconds();
        Self {
            outcomes: PushOutcomes::new("profiles", &client.url, settings.has_said),
            client,
            name: format!("gpuprobe%7Bhostname%3D{host}%7D"),
            known: [(first.clone(), now), (first, now)],
        }
    }

    /// Pushes at each tick, until the host is to be looked up again.
    pub(super) async fn until_unreachable(
        mut self,
        documents: &Arc<Documents>,
        mut ticks: Interval,
    ) {
        loop {
            ticks.tick().await;
            for (index, document) in PROFILES.into_iter().enumerate() {
                let Ok(bytes) = documents.get(document, false).await else {
                    continue;
                };
                let outcome = match self.push(index, &bytes).await {
                    Ok(Pushed::Nothing) => continue,
                    Ok(Pushed::Profile) => Ok(()),
                    Err(error) => Err(error),
                };
                if self.outcomes.note(&outcome) {
                    return;
                }
                if outcome.is_err() {
                    break;
                }
            }
        }
    }

    async fn push(&mut self, index: usize, bytes: &[u8]) -> Result<Pushed, PushError> {
        let (from, until) = (self.known[index].1, unix_seconds());
        let difference = self.difference(index, bytes);
        let (body, counted) = difference.map_err(|why| PushError {
            is_unreachable: false,
            why,
        })?;
        let mut outcome = Pushed::Nothing;
        if let Some(body) = body {
            let name = &self.name;
            let path = self.client.url.path_of("/ingest");
            let pushed = self.client.push(PushedDocument {
                path: format!(
                    "{path}?name={name}&from={from}&until={until}&format=pprof&spyName=gpuprobe"
                ),
                content_type: "application/octet-stream",
                is_gzip: false,
                body,
            });
            pushed.await?;
            outcome = Pushed::Profile;
        }
        self.known[index] = (Some(counted), until);
        Ok(outcome)
    }

    /// The profile to push, if it has a sample, and the counts up to it.
    fn difference(&self, index: usize, bytes: &[u8]) -> Result<(Option<Vec<u8>>, CountedSince)> {
        let mut profile = pprof::unpack(bytes)?;
        let known = self.known[index].0.as_ref();
        let counted = CountedSince::take(&mut profile, known);
        let mut body = Vec::new();
        pprof::pack(&profile, &mut body)?;
        Ok(((!profile.sample.is_empty()).then_some(body), counted))
    }
}

/// Whether a character needs no escape, neither in a query nor in Pyroscope's names.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._".contains(c)
}

/// Now, seconds since 1970.
fn unix_seconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}
