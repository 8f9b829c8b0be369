//! Documents for `gpuprobe serve`, made from the live state.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;

use super::super::own_use::{own_use, start, thread_cpu};
use super::Run;
use crate::live::announce;
use crate::live::stacks::StackState;
use crate::serve::{Answer, DocumentRequest, ServeConfig, ServedDocument};
use gpuprobe_model::clock;
use gpuprobe_model::stack::{NoSymbols, Symbolize};
use gpuprobe_os::say;
use gpuprobe_report as report;
use gpuprobe_report::Report;
use gpuprobe_report::metrics::Metrics;
use gpuprobe_report::profile::{self, ProfileScope, Weight};
use gpuprobe_views::metrics::openmetrics;
use gpuprobe_views::profile::pprof;
use gpuprobe_views::status;
use serde::Serialize;

/// How long a report, or metrics, are the newest for all documents.
const NEW_FOR: Duration = Duration::from_millis(400);
/// After a document that took so long, there is none for this many times as long: a fifth of the time at most
/// goes into documents.
const SHARE: u32 = 4;
/// Maximum of that.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The newest report and the metrics made from all of them.
pub(super) struct DocumentState {
    metrics: Metrics,
    /// The newest report, and its explanation apart once it is public.
    report: Option<Report>,
    explanation: Option<Report>,
    /// Whether nothing secret is in the report any more.
    is_public: bool,
    start: Duration,
    /// When the report was made, and when metrics last took in the state.
    made: Option<Instant>,
    counted: Option<Instant>,
}

impl DocumentState {
    pub(super) fn new(config: &ServeConfig) -> Self {
        Self {
            metrics: Metrics::new(config.limits),
            report: None,
            explanation: None,
            is_public: false,
            start: start(),
            made: None,
            counted: None,
        }
    }

    /// Makes the newest report one that others may read. Metrics alone do not need that.
    fn make_public(&mut self) {
        if let Some(report) = self.report.as_mut().filter(|_| !self.is_public) {
            report.hide_secrets();
            self.explanation = Some(report.take_explanation());
            self.is_public = true;
        }
    }
}

impl Run<'_> {
    /// Answers the HTTP thread.
    ///
    /// # Errors
    /// Returns an error if the rings cannot be read.
    pub(super) fn serve(&mut self, request: DocumentRequest) -> Result<()> {
        let Some(mut served) = self.served.take() else {
            request.answer(Err("nothing is served".to_owned()));
            return Ok(());
        };
        let (begun, cpu) = (Instant::now(), thread_cpu());
        let document = request.document;
        let made = self.document(&mut served, document);
        self.served = Some(served);
        let (took, cpu) = (begun.elapsed(), thread_cpu().saturating_sub(cpu));
        tracing::debug!(
            ?document,
            us = took.as_micros(),
            cpu_us = cpu.as_micros(),
            "served"
        );
        request.answer(made?);
        if let Some(serving) = &mut self.serving {
            serving.pause((took * SHARE).min(LONGEST_PAUSE));
        }
        Ok(())
    }

    /// Takes in the state where nobody has asked for it: processes that have ended are dropped once a report
    /// has listed them.
    pub(super) fn refresh_served(&mut self) -> Result<()> {
        if let Some(mut served) = self.served.take() {
            let refreshed = self.refresh_metrics(&mut served);
            self.served = Some(served);
            refreshed?;
        }
        Ok(())
    }

    /// Prints the address.
    pub(super) fn announce_served(&self) {
        if let Some(serving) = &self.serving {
            say(format_args!("serving on {}", serving.url()));
        }
    }

    fn document(&mut self, served: &mut DocumentState, document: ServedDocument) -> Result<Answer> {
        Ok(match document {
            ServedDocument::Ready => Ok(b"ready\n".to_vec()),
            ServedDocument::Page => {
                self.refresh(served)?;
                served.make_public();
                let explanation = served.explanation.as_ref();
                let explain = explanation.and_then(|report| report.explain.as_ref());
                Ok(status::page(&self.status(), served.report.as_ref(), explain).into_bytes())
            }
            ServedDocument::Metrics => {
                self.refresh_metrics(served)?;
                let text = openmetrics(&served.metrics.families);
                text.map(String::into_bytes)
                    .map_err(|error| error.to_string())
            }
            ServedDocument::Report => {
                self.refresh(served)?;
                served.make_public();
                json(&served.report)
            }
            ServedDocument::Explain => {
                self.refresh(served)?;
                served.make_public();
                json(&served.explanation)
            }
            ServedDocument::InUse => self.memory_profile(Weight::End)?,
            ServedDocument::Allocated => self.memory_profile(Weight::Total)?,
            ServedDocument::Launches => {
                self.refresh(served)?;
                served.make_public();
                let report = served.report.as_ref();
                let trace = report.and_then(|report| report.cudatrace.as_ref());
                let now = self.clock.wall(clock::monotonic_ns());
                let ledger = &self.sink.state.ledger;
                let labels = |pid| profile::labels(ledger, pid);
                packed(|out| pprof::write_launches(trace, now.timestamp_nanos_opt(), labels, out))
            }
        })
    }

    /// Takes in the state for metrics, unless that was done just now.
    fn refresh_metrics(&mut self, served: &mut DocumentState) -> Result<()> {
        if !is_new(served.counted) {
            self.renew(served, false)?;
        }
        Ok(())
    }

    /// Makes a new report, unless there is one.
    fn refresh(&mut self, served: &mut DocumentState) -> Result<()> {
        if !is_new(served.made) {
            served.report = Some(self.renew(served, true)?);
            served.explanation = None;
            served.is_public = false;
            served.made = Some(Instant::now());
        }
        Ok(())
    }

    /// Makes a report of the state as it is now: of everything, or for metrics, which it updates. Names of functions
    /// that are not known yet are in the next.
    fn renew(&mut self, served: &mut DocumentState, is_full: bool) -> Result<Report> {
        self.read_for_report()?;
        if self.config.modes.cudatrace {
            self.count_launches()?;
        }
        let options = report::Options {
            allocations: false,
            explains: true,
            ..self.options(false)
        };
        let ledger = &self.sink.state.ledger;
        let scope = (!is_full).then(|| served.metrics.scope(ledger));
        if let Some(stacks) = &mut self.sink.stacks {
            let state = &self.sink.state;
            let needed = report::needed_locations(state, &options, &stacks.frames, scope);
            stacks.want(needed.into_iter());
        }
        self.sink.find_frames(&mut self.recorded_frames);
        self.reported = Instant::now();
        let usage = self.usage();
        let lost_by_user = match self.lost.any() {
            true => self.lost_by_user(),
            false => Vec::new(),
        };
        let stacks = self.sink.stacks.as_ref();
        let known = stacks.map(StackState::symbols);
        let symbols = known
            .as_ref()
            .map_or(&NoSymbols as &dyn Symbolize, |known| known);
        let sources = report::ReportSources {
            usage: usage.as_ref(),
            lost_by_user: &lost_by_user,
            history: Some(&self.history),
            scope,
            ..report::ReportSources::of_file(Some(&self.clock), symbols)
        };
        let state = &self.sink.state;
        let report = report::build(state, self.lost, &options, sources);
        if is_full {
            self.history.note(&state.ledger, &report, options.now_ns);
        } else {
            let own = own_use(served.start);
            served.metrics.update(&report, &own);
            served.counted = Some(Instant::now());
        }
        self.sink.state.mark_reported();
        Ok(report)
    }

    /// The profile of live processes, without addresses.
    fn memory_profile(&mut self, weight: Weight) -> Result<Answer> {
        self.read_for_report()?;
        let scope = ProfileScope {
            weight,
            full_stacks: self.config.view.full_stacks,
            is_public: true,
            ..ProfileScope::default()
        };
        if let Some(stacks) = &mut self.sink.stacks {
            let needed = profile::needed_locations(&self.sink.state.ledger, scope);
            stacks.want(needed.into_iter());
        }
        self.sink.find_frames(&mut self.recorded_frames);
        let known = self.sink.stacks.as_ref().map(StackState::symbols);
        let symbols = known
            .as_ref()
            .map_or(&NoSymbols as &dyn Symbolize, |known| known);
        let ledger = &self.sink.state.ledger;
        let now = self.clock.wall(clock::monotonic_ns());
        let made = profile::of_ledger(ledger, symbols, scope, now.timestamp_nanos_opt());
        Ok(packed(|out| pprof::write(&made, out)))
    }

    /// The session in a few words.
    fn status(&self) -> Vec<(&'static str, String)> {
        let modes = self.config.modes;
        let modes = [
            (modes.memleak, "memory"),
            (modes.cudatrace, "launches"),
            (modes.bandwidth_util, "copies"),
        ];
        let modes = modes.iter().filter(|(is_on, _)| *is_on);
        let modes: Vec<_> = modes.map(|(_, name)| *name).collect();
        let lost = self.lost.by_name().into_iter();
        let lost = lost.filter(|(_, count)| *count > 0);
        let lost: Vec<_> = lost
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        let attached = format!(
            "{} functions in {} CUDA libraries ({})",
            self.tracer.functions, self.tracer.libraries, self.tracer.probe.kind
        );
        let processes = self.sink.state.ledger.live_processes().count();
        vec![
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("target", announce::describe(self.config)),
            ("modes", modes.join(", ")),
            ("attached", attached),
            ("live traced processes", processes.to_string()),
            ("since", format!("{} s", self.started.elapsed().as_secs())),
            ("PID of gpuprobe", std::process::id().to_string()),
            (
                "lost",
                if lost.is_empty() {
                    "nothing".to_owned()
                } else {
                    lost.join(", ")
                },
            ),
        ]
    }
}

/// Whether that was just now.
fn is_new(made: Option<Instant>) -> bool {
    made.is_some_and(|made| made.elapsed() < NEW_FOR)
}

fn json(document: &impl Serialize) -> Answer {
    serde_json::to_vec(document).map_err(|error| error.to_string())
}

fn packed(write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Answer {
    let mut bytes = Vec::new();
    let packed = write(&mut bytes);
    packed.map(|()| bytes).map_err(|error| format!("{error:#}"))
}
