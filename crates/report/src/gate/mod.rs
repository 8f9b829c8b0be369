//! `--fail-on-leak`: whether what was never freed fails a run, as continuous integration wants to know.
//!
//! Each call stack is judged by itself ([`found`]); what is a leak is put together by its label, as people
//! read it, and is written as text and as `JUnit` XML ([`junit`]).

mod baseline;
mod found;
mod junit;
mod pattern;
mod text;

use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context, Result};
use hashbrown::HashMap;

use crate::memleak::Memleak;
use crate::{GroupBy, Options, View, fold, label};
use baseline::Baseline;
use found::{Excuse, LeakedStack};
use gpuprobe_model::Total;
use gpuprobe_model::stack::Frame;
use gpuprobe_model::text::printable;
use gpuprobe_os::files;
use gpuprobe_os::say;
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
    tolerated_bytes: u64,
    baseline: Option<Baseline>,
    patterns: Vec<Pattern>,
    junit: Option<(PathBuf, File)>,
}

/// A leak at one line or function of a program.
#[derive(Clone, Debug)]
struct Leak {
    program: String,
    /// The processes, each once.
    pids: Vec<u32>,
    /// The function called there: one of CUDA, or of an allocator.
    api: String,
    label: String,
    owner: String,
    amount: Total,
    /// Amount in the baseline; `None` if it has none.
    before: Option<Total>,
    /// Call stacks, and the frames of the one that leaked most.
    stacks: u64,
    most_bytes: u64,
    stack: Vec<Frame>,
}

/// The result: leaks, and memory that is excused.
struct GateResult {
    leaks: Vec<Leak>,
    leaked: Total,
    tolerated_bytes: u64,
    /// Excused memory: the excuse, the number of sites and their amount.
    excused: Vec<(Excuse, u64, Total)>,
    /// Processes that have not ended.
    running: u64,
}

impl GateResult {
    fn fails(&self) -> bool {
        let is_tolerated = self.tolerated_bytes > 0 && self.leaked.bytes <= self.tolerated_bytes;
        !self.leaks.is_empty() && !is_tolerated
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
pub(crate) fn view() -> View {
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
        let mut patterns: Vec<_> = config
            .ignored
            .iter()
            .map(|one| Pattern::typed(one))
            .collect();
        for path in &config.suppressions {
            patterns.extend(pattern::read(path)?);
        }
        let junit = config.junit.as_ref().map(|path| {
            let file = files::create(path)
                .with_context(|| format!("cannot write to {}", path.display()))?;
            anyhow::Ok((path.clone(), file))
        });
        Ok(Self {
            tolerated_bytes: config.tolerated_bytes,
            baseline: config.baseline.as_deref().map(Baseline::read).transpose()?,
            patterns,
            junit: junit.transpose()?,
        })
    }

    /// Judges what processes never freed, by a report of [`options`]: of those that have ended, or, of a
    /// file, of all. Says why it fails, and writes what was asked for. Whether it fails.
    ///
    /// # Errors
    /// The XML cannot be written.
    pub fn judge(self, memleak: &Memleak, is_of_file: bool) -> Result<bool> {
        let judgement = self.judgement(memleak, is_of_file);
        for line in text::lines(&judgement, &self.patterns) {
            say(line);
        }
        if let Some((path, file)) = &self.junit {
            junit::write(&judgement, file)
                .with_context(|| format!("cannot write to {}", path.display()))?;
        }
        Ok(judgement.fails())
    }

    fn judgement(&self, memleak: &Memleak, is_of_file: bool) -> GateResult {
        let all = found::all(memleak, is_of_file);
        let grown = self
            .baseline
            .as_ref()
            .map(|baseline| baseline.compare(&all));
        let mut leaks = Vec::new();
        let mut excused: Vec<(Excuse, u64, Total)> = Vec::new();
        for (index, one) in all.iter().enumerate() {
            let pattern = self.patterns.iter().position(|pattern| pattern.is_of(one));
            let before = grown.as_ref().map(|grown| grown[index]);
            let known = before.and_then(|grown| (!grown.is_more).then_some(Excuse::Baseline));
            let excuse = pattern.map(Excuse::Pattern);
            match excuse.or_else(|| found::excuse(one)).or(known) {
                None => leaks.push((one, before.map(|grown| grown.before))),
                Some(excuse) => {
                    let place = excused.iter().position(|(known, ..)| *known == excuse);
                    let place = place.unwrap_or_else(|| {
                        excused.push((excuse, 0, Total::default()));
                        excused.len() - 1
                    });
                    excused[place].1 += 1;
                    excused[place].2.merge(one.amount);
                }
            }
        }
        let leaks = merge_by_call_site(&leaks);
        let mut leaked = Total::default();
        leaks.iter().for_each(|leak| leaked.merge(leak.amount));
        let processes = memleak.processes.iter().filter(|process| process.traced);
        let running = processes.filter(|process| !process.exited && !is_of_file);
        GateResult {
            leaks,
            leaked,
            tolerated_bytes: self.tolerated_bytes,
            excused,
            running: running.count() as u64,
        }
    }
}

/// By what leaks are one: function, source file, line and file of code.
type Place<'a> = (&'a str, Option<&'a str>, Option<u32>, &'a str);

/// The places by which a stack is told from others, as in reports: in Python, the user's lines.
fn places(stack: &[Frame]) -> Vec<Place<'_>> {
    let telling: Vec<_> = fold::telling(stack).map(place).collect();
    match telling.is_empty() {
        true => stack.iter().map(place).collect(),
        false => telling,
    }
}

fn place(frame: &Frame) -> Place<'_> {
    let file = frame.file.as_deref();
    (&frame.function, file, frame.line, &frame.module)
}

/// The leaks, those that are one call site in whichever process together, most bytes first.
fn merge_by_call_site(all: &[(&LeakedStack<'_>, Option<Total>)]) -> Vec<Leak> {
    let mut leaks: Vec<Leak> = Vec::new();
    let mut known = HashMap::new();
    for (found, before) in all {
        let key = (
            &found.program,
            &found.api,
            found.is_tensor,
            places(found.stack),
        );
        let place = *known.entry(key).or_insert(leaks.len());
        if place == leaks.len() {
            leaks.push(found.as_leak(*before));
            continue;
        }
        let leak = &mut leaks[place];
        if found.amount.bytes > leak.most_bytes {
            leak.most_bytes = found.amount.bytes;
            leak.stack = found.stack.to_vec();
            found.owner.clone_into(&mut leak.owner);
        }
        leak.amount.merge(found.amount);
        leak.stacks += 1;
        if !leak.pids.contains(&found.pid) {
            leak.pids.push(found.pid);
        }
    }
    name(&mut leaks);
    leaks.sort_by(|a, b| {
        let key = |leak: &Leak| std::cmp::Reverse((leak.amount.bytes, leak.amount.allocations));
        (key(a), &a.label).cmp(&(key(b), &b.label))
    });
    leaks
}

/// Gives leaks the labels that tell them apart.
fn name(leaks: &mut [Leak]) {
    let sites: Vec<_> = leaks
        .iter()
        .map(|leak| (&*leak.stack, &*leak.api))
        .collect();
    let labels = label::labels(&sites);
    for (leak, label) in leaks.iter_mut().zip(labels) {
        // What has no stack has said what it is.
        if !leak.stack.is_empty() {
            leak.label = printable(&label);
        }
    }
}

#[cfg(test)]
mod tests;
