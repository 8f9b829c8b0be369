//! The answer to "is it leaking, and whose memory is it?", from a report of memory.
//!
//! Nothing is computed here but words: what a call site does was judged by the engine
//! ([`gpuprobe_engine::verdict`]), what is held is in [`Memleak`].

mod notes;
mod sites;

use std::cmp::Reverse;

use serde::{Serialize, Serializer};

use gpuprobe_engine::verdict::{Confidence, Severity, Verdict};
use gpuprobe_model::text::{printable, size};

use crate::Report;
use crate::memleak::{Memleak, ProcessReport};
use crate::owners::OwnerReport;
use crate::words::age;

/// Verdicts, and who holds memory.
#[derive(Clone, Debug, Serialize)]
pub struct Explain {
    /// By process, the worst first.
    pub verdicts: Vec<VerdictReport>,
    /// Live GPU memory by library or program, over all processes.
    pub owners: Vec<OwnerReport>,
    /// The processes, for people, each with what is printed before its verdicts:
    /// `PID 683 python3 train.py on GPU 0 (H200): 6.20 GiB used, of it 5.70 GiB explained by call sites`.
    #[serde(skip)]
    pub processes: Vec<(u32, String)>,
}

/// A verdict with its evidence.
#[derive(Clone, Debug, Serialize)]
pub struct VerdictReport {
    /// `growing`, `growing per cycle`, `plateau`, `one-off`, `cache`, `freed late`, `never freed at exit`,
    /// `contexts left behind`, `fragmentation`, `idle context`, `context`, `handles`, `before attach or outside CUDA`, `shared`,
    /// `out of memory`.
    #[serde(serialize_with = "name_of")]
    pub verdict: Verdict,
    /// `certain`, `likely`, or `not enough data: N more seconds`.
    #[serde(serialize_with = "text_of")]
    pub confidence: Confidence,
    /// Id of the process.
    pub pid: u32,
    /// Number of the call site, if it is about one.
    pub site: Option<u32>,
    /// The site is one of tensors, of the process's device of this number.
    pub tensors_of_device: Option<u16>,
    /// Label of the call site; `None` if the verdict is of no site.
    #[serde(rename = "where", skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The library or program whose memory it is.
    pub owner: Option<String>,
    /// Bytes that this is about.
    pub bytes: u64,
    /// Their number of allocations, tensors or handles.
    pub allocations: u64,
    /// How fast it grows, if it does.
    pub bytes_per_second: Option<f64>,
    /// Since when it is so: `CLOCK_MONOTONIC` nanoseconds, or those of a file's rows.
    pub since_ns: u64,
    /// The numbers that led to it.
    pub evidence: Vec<String>,
    /// Recommended action for the user.
    pub advice: &'static str,
    /// How grave it is; in JSON, the word in front of it in text.
    #[serde(serialize_with = "word_of")]
    pub grade: Severity,
}

fn name_of<S: Serializer>(verdict: &Verdict, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(verdict.name())
}

fn text_of<S: Serializer>(confidence: &Confidence, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(confidence)
}

fn word_of<S: Serializer>(grade: &Severity, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(grade.word())
}

impl VerdictReport {
    /// Something about a process and no call site.
    fn of_process(process: &ProcessReport, verdict: Verdict, bytes: u64, evidence: String) -> Self {
        Self {
            verdict,
            confidence: Confidence::Certain,
            pid: process.pid,
            site: None,
            tensors_of_device: None,
            label: None,
            owner: None,
            bytes,
            allocations: 0,
            bytes_per_second: None,
            since_ns: 0,
            evidence: vec![evidence],
            advice: verdict.advice(),
            grade: verdict.severity(Confidence::Certain),
        }
    }

    /// Whether it is one that a gate that looks for growth lets nobody through with.
    pub fn is_growth(&self) -> bool {
        self.grade == Severity::Leak
    }
}

impl Explain {
    /// Explanation of a report of all call sites; `None` without a memory report.
    pub(crate) fn of(report: &Report) -> Option<Self> {
        let memleak = report.memleak.as_ref()?;
        let mut verdicts = Vec::new();
        let mut processes = Vec::new();
        for process in &memleak.processes {
            let mut found = sites::verdicts(process, memleak);
            found.extend(notes::verdicts(report, memleak, process));
            found.sort_by_key(|one| {
                let rate = one.bytes_per_second.unwrap_or(0.0);
                (one.grade, Reverse(rate as u64), Reverse(one.bytes))
            });
            if found.is_empty() && process.traced && process.live.is_empty() {
                continue;
            }
            processes.push((process.pid, title(process, memleak)));
            verdicts.append(&mut found);
        }
        Some(Self {
            verdicts,
            owners: memleak.owners.clone(),
            processes,
        })
    }

    /// The part about one process, without the owners of all memory; `None` if there is nothing to say about it.
    #[must_use]
    pub fn only(mut self, pid: u32) -> Option<Self> {
        self.processes.retain(|(process, _)| *process == pid);
        self.verdicts.retain(|verdict| verdict.pid == pid);
        self.owners.clear();
        (!self.processes.is_empty()).then_some(self)
    }

    /// The verdicts on a process.
    pub fn of_process(&self, pid: u32) -> impl Iterator<Item = &VerdictReport> {
        self.verdicts.iter().filter(move |one| one.pid == pid)
    }

    /// Whether anything is a leak.
    pub fn has_growth(&self) -> bool {
        self.verdicts.iter().any(VerdictReport::is_growth)
    }
}

/// `PID 683 python3 train.py on GPU 0 (H200): 6.20 GiB used, of it 5.70 GiB explained by call sites`.
fn title(process: &ProcessReport, memleak: &Memleak) -> String {
    let mut title = format!("PID {} {}", process.pid, process.who().program());
    if let Some(user) = &process.user {
        title += &format!(" ({})", printable(user));
    }
    let gpus = process.gpus.iter().filter_map(|share| share.index);
    for (number, index) in gpus.enumerate() {
        let before = if number == 0 { " on" } else { "," };
        let gpu = memleak.gpus.iter().find(|gpu| gpu.index == index);
        let model = gpu.map_or(String::new(), |gpu| format!(" ({})", printable(&gpu.name)));
        title += &format!("{before} GPU {index}{model}");
    }
    let live = size(process.live.live_bytes);
    title += &match process.nvml {
        Some(nvml) => format!(
            ": {} used, of it {live} explained by call sites",
            size(nvml.used_bytes)
        ),
        None if process.exited => format!(": ended, {live} never freed"),
        None => format!(": {live} at call sites"),
    };
    title
}

/// `58s`; of less than a second, `0.100s`.
fn seconds(ns: u64) -> String {
    match ns {
        0..1_000_000_000 => format!("{:.3}s", ns as f64 / 1e9),
        _ => age(ns),
    }
}
