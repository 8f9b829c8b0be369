//! `--fail-on-leak`: whether what was never freed fails a run, as continuous integration wants to know.
//!
//! Each call stack is judged by itself ([`found`]); what is a leak is put together by its call site.

mod baseline;
mod found;
mod pattern;

use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context, Result};
use hashbrown::HashMap;

use crate::compare::Comparison;
use crate::memleak::Memleak;
use crate::site_key::SiteKey;
use crate::{GroupBy, Options, View, label};
pub use found::Excuse;
use gpuprobe_cuda::Belongs;
use gpuprobe_model::Total;
use gpuprobe_model::stack::Frame;
use gpuprobe_model::text::printable;
use gpuprobe_os::files;
use gpuprobe_stacks::allocators::down_to_start;
use pattern::Pattern;

/// The exit status of a run that leaked, where the command itself succeeded. No status of gpuprobe, pytest
/// or a shell has this number.
pub const LEAKED: u8 = 100;

/// Which memory counts as a leak, and the files to write the result to.
#[derive(Clone, Debug, Default)]
pub struct GateConfig {
    /// Bytes that may be leaked, of all processes together.
    pub tolerated_bytes: u64,
    /// An earlier report in JSON: what it has is no leak.
    pub baseline: Option<PathBuf>,
    /// Patterns of what is no leak.
    pub ignored: Vec<String>,
    /// Files of such patterns.
    pub suppressions: Vec<PathBuf>,
    /// Where `JUnit` XML is written.
    pub junit: Option<PathBuf>,
}

/// Judges one run by a [`GateConfig`].
pub struct Gate {
    baseline: Option<Comparison>,
    patterns: Vec<Pattern>,
    result: GateResult,
}

/// A leak at one line or function of a program.
#[derive(Clone, Debug, Default)]
pub struct Leak {
    /// The command that leaked.
    pub program: String,
    /// The processes, each once; 0 if they are no longer known.
    pub pids: Vec<u32>,
    /// The function called there: one of CUDA, or of an allocator.
    pub api: String,
    /// Label of the call site.
    pub label: String,
    /// Label in the report, for patterns.
    pub full_label: String,
    /// Owner of the memory.
    pub owner: String,
    /// Memory never freed.
    pub amount: Total,
    /// Amount in the baseline; `None` if it has none.
    pub before: Option<Total>,
    /// Number of call stacks.
    pub stacks: u64,
    /// Bytes of the one that leaked most.
    pub most_bytes: u64,
    /// The frames of the stack that leaked most, down to the start of the program.
    pub stack: Vec<Frame>,
    /// Whether an allocator of a framework handed it out.
    pub is_tensor: bool,
    /// Why it is no leak.
    pub excuse: Option<Excuse>,
}

/// Amounts by what they have in common, with their number of call stacks.
pub type Excused<K> = Vec<(K, u64, Total)>;

/// The result: leaks, and memory that is excused.
#[derive(Debug, Default)]
pub struct GateResult {
    /// The leaks, most bytes first.
    pub leaks: Vec<Leak>,
    /// Their sum.
    pub leaked: Total,
    /// Bytes that may be leaked.
    pub tolerated_bytes: u64,
    /// Memory suppressed by patterns, by reason or pattern.
    pub suppressed: Excused<String>,
    /// Memory that is excused otherwise.
    pub excused: Excused<Excuse>,
    /// Patterns of files that nothing matched, and their places.
    pub unused: Vec<(String, String)>,
    /// Processes that have not ended.
    pub running: u64,
    /// Where `JUnit` XML is to be written.
    pub junit: Option<(PathBuf, File)>,
}

impl GateResult {
    /// Whether more than what is tolerated was leaked.
    pub fn fails(&self) -> bool {
        let is_tolerated = self.tolerated_bytes > 0 && self.leaked.bytes <= self.tolerated_bytes;
        !self.leaks.is_empty() && !is_tolerated
    }
}

fn count<K: PartialEq>(counts: &mut Excused<K>, key: K, amount: Total) {
    match counts.iter_mut().find(|(known, ..)| *known == key) {
        Some((_, stacks, sum)) => {
            *stacks += 1;
            sum.merge(amount);
        }
        None => counts.push((key, 1, amount)),
    }
}

/// Options of a report that [`Gate::judge`] can read, whatever else is asked for: every call stack.
pub fn options(options: Options) -> Options {
    Options {
        top: None,
        view: view(),
        allocations: false,
        explains: false,
        host_wide: false,
        ..options
    }
}

/// Every call stack, each by itself.
pub fn view() -> View {
    View {
        group: Some(GroupBy::NativeStack),
        ..View::default()
    }
}

impl Gate {
    /// Reads what is to be known, and opens what is to be written, so that a bad path fails before anything
    /// is traced.
    ///
    /// # Errors
    /// A file cannot be read or written, or is no report.
    pub fn open(config: &GateConfig) -> Result<Self> {
        let typed = config.ignored.iter().map(|text| Pattern {
            text: text.clone(),
            ..Pattern::default()
        });
        let mut patterns: Vec<_> = typed.collect();
        for path in &config.suppressions {
            patterns.extend(pattern::read(path)?);
        }
        let junit = config.junit.as_ref().map(|path| {
            let file = files::create(path)
                .with_context(|| format!("cannot write to {}", path.display()))?;
            anyhow::Ok((path.clone(), file))
        });
        Ok(Self {
            baseline: config.baseline.as_deref().map(baseline::read).transpose()?,
            patterns,
            result: GateResult {
                tolerated_bytes: config.tolerated_bytes,
                junit: junit.transpose()?,
                ..GateResult::default()
            },
        })
    }

    /// Judges what processes never freed, by a report of [`options`]: of those that have ended, or, of a
    /// file, of all.
    pub fn judge(self, memleak: &Memleak, is_of_file: bool) -> GateResult {
        let mut all = found::all(memleak, is_of_file);
        if let Some(baseline) = self.baseline {
            baseline::compare(baseline, &mut all);
        }
        let mut used = vec![false; self.patterns.len()];
        let mut leaks = Vec::new();
        let mut result = self.result;
        for leak in all {
            let pattern = self.patterns.iter().position(|one| one.matches(&leak));
            if let Some(number) = pattern {
                used[number] = true;
                let Pattern { text, reason, .. } = &self.patterns[number];
                let name = printable(reason.as_ref().unwrap_or(text));
                count(&mut result.suppressed, name, leak.amount);
            } else if let Some(excuse) = leak.excuse {
                count(&mut result.excused, excuse, leak.amount);
            } else {
                leaks.push(leak);
            }
        }
        result.leaks = merge_by_call_site(leaks);
        for leak in &result.leaks {
            result.leaked.merge(leak.amount);
        }
        let patterns = self.patterns.into_iter().zip(used);
        let unused = patterns.filter(|(_, is_used)| !is_used);
        result.unused = unused
            .filter_map(|(pattern, _)| Some((pattern.text, pattern.place?)))
            .collect();
        let processes = memleak.processes.iter().filter(|process| process.traced);
        let running = processes.filter(|process| !process.exited && !is_of_file);
        result.running = running.count() as u64;
        result
    }
}

/// The leaks, those that are one call site in whichever process together, most bytes first.
fn merge_by_call_site(all: Vec<Leak>) -> Vec<Leak> {
    let mut leaks: Vec<Leak> = Vec::new();
    let mut known = HashMap::new();
    for found in all {
        let site = SiteKey::of(Belongs::Gpu, found.is_tensor, &found.stack);
        let key = (found.program.clone(), found.api.clone(), site);
        let place = *known.entry(key).or_insert(leaks.len());
        let Some(leak) = leaks.get_mut(place) else {
            leaks.push(found);
            continue;
        };
        leak.amount.merge(found.amount);
        leak.stacks += 1;
        if !leak.pids.contains(&found.pids[0]) {
            leak.pids.extend(found.pids);
        }
        if found.amount.bytes > leak.most_bytes {
            leak.most_bytes = found.amount.bytes;
            leak.stack = found.stack;
            leak.owner = found.owner;
        }
    }
    let labels = label::labels(leaks.iter().map(|leak| (&*leak.stack, &*leak.api)));
    for (leak, label) in leaks.iter_mut().zip(labels) {
        // What has no stack has said what it is.
        if !leak.stack.is_empty() {
            leak.label = printable(&label);
        }
        let shown = down_to_start(&leak.stack, |frame| &frame.function);
        leak.stack.truncate(shown);
    }
    leaks.sort_by(|a, b| {
        let key = |leak: &Leak| std::cmp::Reverse((leak.amount.bytes, leak.amount.allocations));
        (key(a), &a.label).cmp(&(key(b), &b.label))
    });
    leaks
}
