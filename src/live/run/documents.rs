//! Documents for `gpuprobe serve`, made from the live state.

use std::io::Write;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use hyper::StatusCode;
use serde::Serialize;

use super::reading::{Reading, symbols};
use super::snapshot::Snapshots;
use crate::live::announce;
use crate::live::own_use::own_use;
use crate::live::top::NAMES_WITHIN;
use crate::serve::{Answer, DocumentRequest, ServeConfig, ServedDocument, Serving, unavailable};
use gpuprobe_analysis::snapshot::FoundSnapshot;
use gpuprobe_model::{TracingCost, clock};
use gpuprobe_report::metrics::Metrics;
use gpuprobe_report::profile::{self, ProfileScope, ProfiledMemory, Weight};
use gpuprobe_report::{Options, Report, words};
use gpuprobe_views::export::write_snapshot;
use gpuprobe_views::metrics::openmetrics;
use gpuprobe_views::profile::pprof;
use gpuprobe_views::status;

/// How long a report is the newest for all documents.
const NEW_FOR: Duration = Duration::from_millis(400);
/// After a document that took so long, there is none for this many times as long: a fifth of the time at most
/// goes into documents.
const SHARE: u32 = 4;
/// Maximum of that.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long blocks of a process that uses its allocator all the time are tried.
const BLOCKS_WITHIN: Duration = Duration::from_millis(500);

/// The HTTP thread, and what it is answered with.
pub(super) struct Served {
    pub(super) serving: Serving,
    metrics: Metrics,
    newest: Option<PublicReport>,
    /// Since 1970.
    start: Duration,
}

/// A report that others may read, its explanation apart.
struct PublicReport {
    report: Report,
    explanation: Report,
    made: Instant,
}

impl Served {
    /// Starts the thread.
    ///
    /// # Errors
    /// Returns an error if it cannot be started.
    pub(super) fn start(config: &ServeConfig) -> Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(Self {
            serving: Serving::start(config)?,
            metrics: Metrics::new(config.limits),
            newest: None,
            start: now.unwrap_or_default(),
        })
    }

    /// Answers the HTTP thread.
    ///
    /// # Errors
    /// Returns an error if the rings cannot be read.
    pub(super) fn answer(
        &mut self,
        request: DocumentRequest,
        reading: &mut Reading<'_>,
        snapshots: &mut Snapshots,
    ) -> Result<()> {
        let begun = Instant::now();
        let answer = self.document(request.document, reading, snapshots)?;
        // The client may be gone.
        let _ = request.answer.send(answer);
        let pause = begun.elapsed() * SHARE;
        self.serving.pause(pause.min(LONGEST_PAUSE));
        Ok(())
    }

    fn document(
        &mut self,
        document: ServedDocument,
        reading: &mut Reading<'_>,
        snapshots: &mut Snapshots,
    ) -> Result<Answer> {
        if document != ServedDocument::Ready {
            reading.read_for_report(false)?;
        }
        Ok(match document {
            ServedDocument::Ready => Ok(b"ready\n".to_vec()),
            ServedDocument::Page => {
                let newest = self.newest(reading, snapshots)?;
                let mut session = session(reading, snapshots);
                let costs = newest.report.tracing_costs.iter();
                session.extend(
                    costs
                        .filter_map(TracingCost::line_with_pid)
                        .map(|it| ("cost", it)),
                );
                let explain = newest.explanation.explain.as_ref();
                Ok(status::page(&session, Some(&newest.report), explain).into_bytes())
            }
            ServedDocument::Metrics => {
                self.update_metrics(reading, snapshots)?;
                let text = openmetrics(&self.metrics.families);
                text.map(String::into_bytes)
                    .map_err(|error| unavailable(&error))
            }
            ServedDocument::Report => json(&self.newest(reading, snapshots)?.report),
            ServedDocument::Explain => json(&self.newest(reading, snapshots)?.explanation),
            ServedDocument::InUse => memory_profile(reading, Weight::End)?,
            ServedDocument::Allocated => memory_profile(reading, Weight::Total)?,
            ServedDocument::Snapshot(pid) => torch_snapshot(pid, reading)?,
            ServedDocument::Launches => {
                let trace = self.newest(reading, snapshots)?.report.cudatrace.as_ref();
                let now = reading.clock.wall(clock::monotonic_ns());
                let labels = |pid| profile::labels(&reading.sink.state.ledger, pid);
                packed(|out| pprof::write_launches(trace, now.timestamp_nanos_opt(), labels, out))
            }
        })
    }

    /// Takes in the state for metrics. Processes that have ended are dropped once that is done.
    pub(super) fn update_metrics(
        &mut self,
        reading: &mut Reading<'_>,
        snapshots: &mut Snapshots,
    ) -> Result<()> {
        let options = options(reading, snapshots);
        let scope = Some(self.metrics.scope(&reading.sink.state));
        let report = snapshots.snapshot(reading, &options, Duration::ZERO, scope)?;
        self.metrics.update(&report, &own_use(self.start));
        snapshots.mark_scraped(reading);
        Ok(())
    }

    /// The newest report, made now unless there is one. Functions without a name yet have one in the next.
    fn newest(
        &mut self,
        reading: &mut Reading<'_>,
        snapshots: &mut Snapshots,
    ) -> Result<&PublicReport> {
        let newest = self.newest.take();
        let newest = match newest.filter(|newest| newest.made.elapsed() < NEW_FOR) {
            Some(newest) => newest,
            None => {
                let options = options(reading, snapshots);
                let mut report = snapshots.snapshot(reading, &options, Duration::ZERO, None)?;
                snapshots.mark(reading, &report, &options);
                report.hide_secrets();
                PublicReport {
                    explanation: report.take_explanation(),
                    report,
                    made: Instant::now(),
                }
            }
        };
        Ok(self.newest.insert(newest))
    }
}

fn options(reading: &Reading<'_>, snapshots: &mut Snapshots) -> Options {
    Options {
        allocations: false,
        explains: true,
        ..snapshots.options(reading, false)
    }
}

/// The profile of live processes, without addresses.
fn memory_profile(reading: &mut Reading<'_>, weight: Weight) -> Result<Answer> {
    let scope = ProfileScope {
        weight,
        full_stacks: reading.config.view.full_stacks,
        is_public: true,
        ..ProfileScope::default()
    };
    let profile = reading.profile(scope, Duration::ZERO)?;
    Ok(packed(|out| pprof::write(&profile, out)))
}

/// PyTorch's memory in a process that may be traced, for its viewer.
fn torch_snapshot(pid: u32, reading: &mut Reading<'_>) -> Result<Answer> {
    let is_on = reading.config.serve.as_ref().is_some_and(|it| it.snapshots);
    let process = reading.sink.state.ledger.process_of(pid);
    if !is_on || process.is_none_or(|process| process.exited) {
        let why = format!("process {pid} is not traced, or --snapshots is off");
        return Ok(Err((StatusCode::NOT_FOUND, Some(why))));
    }
    // Names the lines.
    let scope = ProfileScope {
        of: ProfiledMemory::Tensors,
        pid: Some(pid),
        ..ProfileScope::default()
    };
    reading.profile(scope, NAMES_WITHIN)?;
    let mut blocks = reading.sink.host_info.blocks.borrow_mut();
    let found = match blocks.read_tried(pid, BLOCKS_WITHIN) {
        Ok(found) => found,
        Err(why) => {
            let why = format!("PyTorch's allocator in process {pid} cannot be read: {why}");
            return Ok(Err(unavailable(&why)));
        }
    };
    drop(blocks);
    // A block that has taken the place of another is known by then.
    reading.catch_up()?;
    let process = reading.sink.state.ledger.process_of(pid);
    let process = process.filter(|_| !reading.rings.is_behind());
    let traced = process.map(|process| (process, symbols(&reading.sink)));
    let snapshot = FoundSnapshot::new(&found, traced);
    Ok(packed(|out| Ok(write_snapshot(&snapshot, out)?)))
}

/// The session in a few words.
fn session(reading: &Reading<'_>, snapshots: &Snapshots) -> Vec<(&'static str, String)> {
    let (config, tracer) = (reading.config, &reading.tracer);
    let modes = [
        (config.modes.memleak, "memory"),
        (config.modes.cudatrace, "launches"),
        (config.modes.bandwidth_util, "copies"),
    ];
    let modes = modes
        .iter()
        .filter_map(|(is_on, name)| is_on.then_some(*name));
    let lost = match words::describe_lost(&reading.lost) {
        none if none.is_empty() => "nothing".to_owned(),
        lost => lost,
    };
    let attached = format!(
        "{} functions in {} CUDA libraries ({})",
        tracer.functions, tracer.libraries, tracer.probe.kind
    );
    let seconds = snapshots.started.elapsed().as_secs();
    vec![
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("target", announce::describe(config)),
        ("modes", modes.collect::<Vec<_>>().join(", ")),
        ("attached", attached),
        ("since", format!("{seconds} s")),
        ("PID of gpuprobe", std::process::id().to_string()),
        ("lost", lost),
    ]
}

fn json(document: &impl Serialize) -> Answer {
    serde_json::to_vec(document).map_err(|error| unavailable(&error))
}

fn packed(write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Answer {
    let mut bytes = Vec::new();
    let packed = write(&mut bytes);
    packed
        .map(|()| bytes)
        .map_err(|error| unavailable(&format!("{error:#}")))
}
