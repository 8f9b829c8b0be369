//! `--fail-on`: whether a leak fails a run, as continuous integration wants to know.
//!
//! A leak is what grows, by the verdicts of [`Explain`], or what was never freed. What is a leak is put together by its
//! call site. `--baseline` is a report of an earlier run in JSON.

mod pattern;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use hashbrown::HashMap;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::compare::Comparison;
use crate::explain::Explain;
use crate::memleak::{Memleak, ProcessReport, SiteReport};
use crate::site_key::SiteKey;
use crate::{GroupBy, Options, View, label, owners};
use gpuprobe_cuda::{Belongs, MemoryKind};
use gpuprobe_engine::totals::MemorySums;
use gpuprobe_engine::verdict::{Judgement, Verdict};
use gpuprobe_model::Total;
use gpuprobe_model::stack::Frame;
use gpuprobe_model::text::printable;
use gpuprobe_model::typed::parse_size;
use gpuprobe_os::regular::open_input;
use gpuprobe_os::{files, say};
use gpuprobe_stacks::allocators::down_to_start;
use pattern::Pattern;

/// The exit status of a run that leaked, where the command itself succeeded. No status of gpuprobe, pytest
/// or a shell has this number.
pub const LEAKED: u8 = 100;

/// Which memory is a leak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// Growth in a process with an interpreter, which holds memory to its end; in another, what it never freed.
    #[default]
    Leak,
    /// What was never freed.
    NeverFreed,
    /// Growth.
    Growing,
}

/// A rule, and the bytes that it tolerates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailOn {
    /// Which memory is a leak.
    pub rule: Rule,
    /// Bytes that may be leaked.
    pub tolerated_bytes: u64,
}

impl FromStr for FailOn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, size) = text
            .split_once('=')
            .map_or((text, None), |(a, b)| (a, Some(b)));
        let rule = match name {
            "leak" => Rule::Leak,
            "never-freed" => Rule::NeverFreed,
            "growing" => Rule::Growing,
            _ => return Err("it is leak, never-freed or growing, and perhaps =SIZE".to_owned()),
        };
        let tolerated_bytes = size.map_or(Ok(0), parse_size)?;
        Ok(Self {
            rule,
            tolerated_bytes,
        })
    }
}

/// Which memory counts as a leak, and the files to write the result to.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Output")]
pub struct GateConfig {
    /// Exit with status 100 after a leak, or with =SIZE over SIZE: leak, never-freed or growing.
    ///
    /// leak: in Python, what grows; in native programs, what was never freed. One-time library
    /// allocations and framework pools do not count.
    #[arg(long, value_name = "RULE[=SIZE]", required = false)]
    pub fail_on: FailOn,

    /// With --fail-on, count only growth since FILE, an earlier report in JSON.
    #[arg(long, value_name = "FILE", requires = "fail_on")]
    pub baseline: Option<PathBuf>,

    /// With --fail-on, ignore call sites whose owner, label, function, library or source
    /// file matches GLOB; repeatable.
    #[arg(long = "ignore", value_name = "GLOB", requires = "fail_on")]
    pub ignored: Vec<String>,

    /// Like --ignore for each line of FILE, with the reason after a #; repeatable.
    #[arg(long, value_name = "FILE", requires = "fail_on")]
    pub suppressions: Vec<PathBuf>,

    /// With --fail-on, write junit XML to FILE: a failed test for each leak.
    #[arg(long, value_name = "FILE", requires = "fail_on")]
    pub junit: Option<PathBuf>,
}

/// Where processes come from, which may tell of their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunSource {
    /// A live run.
    Live,
    /// A recording: nothing is known of later.
    Recording,
    /// An nsys export, which does not tell the ends of processes.
    Export,
}

/// Judges one run by a [`GateConfig`].
pub struct Gate {
    rule: Rule,
    baseline: Option<Comparison>,
    patterns: Vec<Pattern>,
    result: GateReport,
    junit: Option<(PathBuf, File)>,
}

/// A leak at one line or function of a program, or memory there that is none.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Leak {
    /// The command that leaked.
    pub program: String,
    /// The processes, each once; 0 if they are no longer known.
    pub pids: Vec<u32>,
    /// The function called there: one of CUDA, or of an allocator.
    pub api: String,
    /// Label of the call site.
    #[serde(rename = "where")]
    pub label: String,
    /// Label in the report, for patterns.
    #[serde(skip)]
    pub full_label: String,
    /// Owner of the memory.
    pub owner: String,
    /// Memory that leaked.
    #[serde(flatten)]
    pub amount: Total,
    /// How it grows, if that is why it leaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth: Option<String>,
    /// Amount in the baseline; `None` if it has none.
    #[serde(skip)]
    pub before: Option<Total>,
    /// Number of call stacks.
    #[serde(skip)]
    pub stacks: u64,
    /// Bytes of the one that leaked most.
    #[serde(skip)]
    pub most_bytes: u64,
    /// The frames of the stack that leaked most, down to the start of the program.
    #[serde(skip)]
    pub stack: Vec<Frame>,
    /// Whether an allocator of a framework handed it out.
    #[serde(skip)]
    pub is_tensor: bool,
    /// Why it is no leak, in words.
    #[serde(skip)]
    pub excuse: Option<String>,
}

/// Memory that is no leak for the same reason.
#[derive(Clone, Debug, Serialize)]
pub struct Excused {
    /// The reason.
    pub why: String,
    /// Number of call stacks.
    pub call_stacks: u64,
    /// Their memory.
    #[serde(flatten)]
    pub amount: Total,
    /// The same by call site, most bytes first.
    #[serde(skip)]
    pub sites: Vec<Leak>,
}

/// The result: leaks, and memory that is excused.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GateReport {
    /// The rules that were used: `Python: growing`, `native: never freed`.
    pub rules: Vec<String>,
    /// Whether more than what is tolerated was leaked.
    pub failed: bool,
    /// The leaks, most bytes first.
    pub leaks: Vec<Leak>,
    /// Their sum.
    pub leaked: Total,
    /// Bytes that may be leaked.
    pub tolerated_bytes: u64,
    /// Memory that is no leak.
    pub excused: Vec<Excused>,
    /// Patterns of suppression files that nothing matched.
    pub unused_suppressions: Vec<String>,
    /// Processes that have not ended, and are not judged.
    pub still_running: u64,
}

/// The result, and where `JUnit` XML is to be written.
pub struct GateResult {
    /// The result.
    pub report: GateReport,
    /// The file, opened for writing.
    pub junit: Option<(PathBuf, File)>,
}

impl GateReport {
    /// Whether more than what is tolerated was leaked.
    pub fn fails(&self) -> bool {
        let is_tolerated = self.tolerated_bytes > 0 && self.leaked.bytes <= self.tolerated_bytes;
        !self.leaks.is_empty() && !is_tolerated
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
            name: text.clone(),
            is_unused: false,
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
            rule: config.fail_on.rule,
            baseline: config.baseline.as_deref().map(read_baseline).transpose()?,
            patterns,
            result: GateReport {
                tolerated_bytes: config.fail_on.tolerated_bytes,
                ..GateReport::default()
            },
            junit: junit.transpose()?,
        })
    }

    /// Options of a report that [`Gate::judge`] can read, whatever else is asked for: every call site, and for what was
    /// never freed every call stack.
    pub fn options(&self, options: Options) -> Options {
        let by_stack = self.rule == Rule::NeverFreed;
        Options {
            top: None,
            view: View {
                group: by_stack.then_some(GroupBy::NativeStack),
                ..View::default()
            },
            allocations: false,
            explains: true,
            host_wide: false,
            ..options
        }
    }

    /// Judges processes by a report of [`Gate::options`]: of what was never freed those that have ended, or, of a file,
    /// all.
    pub fn judge(self, memleak: &Memleak, explain: &Explain, source: RunSource) -> GateResult {
        let (mut result, mut patterns) = (self.result, self.patterns);
        let mut all = Vec::new();
        for process in memleak.processes.iter().filter(|process| process.traced) {
            let Some((name, is_by_growth)) = self.rule.applied(process, source) else {
                result.still_running += 1;
                continue;
            };
            if !result.rules.contains(&name) {
                result.rules.push(name);
            }
            if !is_by_growth {
                all.extend(never_freed(process));
            }
            let is_outside = |leak: &Leak| self.rule == Rule::Leak && leak.full_label.is_empty();
            let grown = growing(process, explain);
            all.extend(grown.filter(|leak| is_by_growth || is_outside(leak)));
        }
        all.extend(forgotten(memleak, self.rule));
        all.retain(|one| one.amount.allocations > 0);
        if let Some(baseline) = self.baseline {
            compare(baseline, &mut all);
        }
        let mut by_excuse: IndexMap<Option<String>, Vec<Leak>> = IndexMap::default();
        for mut leak in all {
            if let Some(pattern) = patterns.iter_mut().find(|one| one.matches(&leak)) {
                pattern.is_unused = false;
                leak.excuse = Some(format!("suppressed ({})", printable(&pattern.name)));
            }
            let alike = by_excuse.entry(leak.excuse.clone());
            alike.or_default().push(leak);
        }
        let leaks = by_excuse.shift_remove(&None).unwrap_or_default();
        let excused = by_excuse.into_iter().map(|(why, leaks)| Excused {
            why: why.unwrap_or_default(),
            call_stacks: leaks.len() as u64,
            amount: sum(&leaks),
            sites: merge_by_call_site(leaks),
        });
        result.excused = excused.collect();
        let unused = patterns.iter().filter(|pattern| pattern.is_unused);
        result.unused_suppressions = unused.map(|pattern| printable(&pattern.text)).collect();
        result.leaked = sum(&leaks);
        result.leaks = merge_by_call_site(leaks);
        result.failed = result.fails();
        GateResult {
            report: result,
            junit: self.junit,
        }
    }
}

impl Rule {
    /// The rule in words, as it applies to a process, and whether that is by growth; `None` if the process has to end
    /// before it can be judged.
    fn applied(self, process: &ProcessReport, source: RunSource) -> Option<(String, bool)> {
        let has_ended = process.exited || source == RunSource::Export;
        let kind = process.interpreter.unwrap_or("native");
        let (is_by_growth, running) = match self {
            Self::NeverFreed if !has_ended && source == RunSource::Live => return None,
            Self::NeverFreed => (false, ""),
            Self::Leak if process.interpreter.is_none() => match has_ended {
                true => (false, ""),
                false => (true, ", still running"),
            },
            Self::Leak | Self::Growing => (true, ""),
        };
        let what = ["never freed", "growing"][usize::from(is_by_growth)];
        Some((format!("{kind}{running}: {what}"), is_by_growth))
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

/// Beginnings of the names of functions of PyTorch that hand out memory to cuBLAS, once for each handle and
/// stream, and keep it.
const WORKSPACES: [&str; 2] = [
    "at::cuda::getCurrentCUDABlasHandle",
    "at::cuda::getCUDABlasLtWorkspace",
];

const ONCE: &str = "allocated once by a library";
const VARIABLE: &str = "of variables of modules";
const POOL: &str = "in framework pools (ignored; their tensors are checked instead)";

/// Why memory that was never freed is no leak; none if it is one.
///
/// A variable is never freed but with its module. What goes into a pool or cache of a framework is judged by
/// what it hands out, if that is told. What a library has allocated once, or in its first
/// seconds and for long no more (the verdict `one-off`), is its own state, as a workspace: a leak grows. What the program itself allocates, or nobody is known to, is a leak even if it happened once.
fn excuse(site: &SiteReport, is_tensor: bool) -> Option<&'static str> {
    let is_variable = |kind| matches!(kind, MemoryKind::Static | MemoryKind::ManagedStatic);
    let is_workspace = |frame: &Frame| {
        let mut names = WORKSPACES.iter();
        names.any(|name| frame.function.starts_with(name))
    };
    let judged = site.judgement.as_ref();
    let is_one_off =
        |judged: &Judgement| judged.verdict == Verdict::OneOff && judged.confidence.is_enough();
    let is_once = site.alloc_calls == 1 || judged.is_some_and(is_one_off);
    if !site.kinds.is_empty() && site.kinds.iter().copied().all(is_variable) {
        return Some(VARIABLE);
    }
    match is_tensor {
        true => site.stack.iter().any(is_workspace).then_some(ONCE),
        false if site.is_kept || site.is_pinned_cache() => Some(POOL),
        false => (site.is_library && is_once).then_some(ONCE),
    }
}

/// All that a process never freed.
fn never_freed(process: &ProcessReport) -> impl Iterator<Item = Leak> {
    process.all_sites().map(|(site, device)| Leak {
        excuse: excuse(site, device.is_some()).map(str::to_owned),
        ..leak_at(process, site, device.is_some())
    })
}

/// What of a process grows, and its call sites that do not, by the verdicts on it.
fn growing(process: &ProcessReport, explain: &Explain) -> impl Iterator<Item = Leak> {
    explain.of_process(process.who.pid).filter_map(move |one| {
        // The site of another verdict is a hint.
        let mut all = process.all_sites().filter(|_| one.label.is_some());
        let leak = (one.leak.as_deref()).map(|site| (site, one.tensors_of_device));
        let site = leak.or_else(|| {
            all.find(|(site, device)| Some(site.id) == one.site && *device == one.tensors_of_device)
        });
        let amount = Total {
            bytes: one.bytes,
            allocations: one.allocations,
        };
        let leak = match site {
            Some((site, device)) => leak_at(process, site, device.is_some()),
            None if one.is_growth() => Leak {
                program: process.who.program(),
                pids: vec![process.who.pid],
                api: one.verdict.name().to_owned(),
                label: one.label.clone().unwrap_or(one.verdict.name().to_owned()),
                owner: one.owner.clone().unwrap_or(owners::UNKNOWN.to_owned()),
                stacks: 1,
                ..Leak::default()
            },
            None => return None,
        };
        Some(match one.is_growth() {
            true => Leak {
                amount,
                most_bytes: amount.bytes,
                growth: one.evidence.first().cloned(),
                ..leak
            },
            false => Leak {
                excuse: Some(one.verdict.name().to_owned()),
                ..leak
            },
        })
    })
}

/// Memory of ended processes of which the call stacks are no longer known.
fn forgotten(memleak: &Memleak, rule: Rule) -> Option<Leak> {
    let mut amount = amount(&memleak.live);
    for process in &memleak.processes {
        let listed = self::amount(&process.live);
        amount.bytes = amount.bytes.saturating_sub(listed.bytes);
        amount.allocations = amount.allocations.saturating_sub(listed.allocations);
    }
    let ended = "of processes that ended long ago";
    let excuse = (rule == Rule::Leak).then(|| ended.to_owned());
    (rule != Rule::Growing).then(|| Leak {
        program: "processes that ended long ago".to_owned(),
        pids: vec![0],
        label: "call sites that are no longer known".to_owned(),
        owner: owners::UNKNOWN.to_owned(),
        amount,
        stacks: 1,
        excuse,
        ..Leak::default()
    })
}

fn sum(leaks: &[Leak]) -> Total {
    let mut sum = Total::default();
    leaks.iter().for_each(|leak| sum.merge(leak.amount));
    sum
}

/// Memory of the GPU and of the host.
fn amount(live: &MemorySums) -> Total {
    let mut sum = live.gpu;
    sum.merge(live.host);
    sum
}

fn leak_at(process: &ProcessReport, site: &SiteReport, is_tensor: bool) -> Leak {
    let label = label::label(&site.stack).unwrap_or_else(|| site.api.clone().into_owned());
    let amount = amount(&site.live);
    Leak {
        program: process.who.program(),
        pids: vec![process.who.pid],
        api: site.api.clone().into_owned(),
        label: printable(&label),
        full_label: site.label.clone(),
        owner: site.owner.clone(),
        amount,
        stacks: 1,
        most_bytes: amount.bytes,
        stack: site.stack.clone(),
        is_tensor,
        ..Leak::default()
    }
}

#[derive(Deserialize)]
struct Document {
    memleak: Option<Memory>,
}

#[derive(Deserialize)]
struct Memory {
    processes: Vec<Holder>,
}

/// A process, or an allocator in it.
#[derive(Deserialize)]
struct Holder {
    #[serde(default)]
    sites: Vec<Site>,
    #[serde(default)]
    pytorch: Vec<Holder>,
    #[serde(default)]
    tensorflow: Vec<Holder>,
    #[serde(default)]
    xla: Vec<Holder>,
    #[serde(default)]
    rmm: Vec<Holder>,
    #[serde(default)]
    cupy: Vec<Holder>,
    #[serde(default)]
    onnxruntime: Vec<Holder>,
    omitted_sites: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Site {
    api: String,
    live_bytes: u64,
    host_bytes: u64,
    live_allocations: u64,
    host_allocations: u64,
    stack: Vec<Frame>,
}

/// Memory that an earlier run never freed, by call site.
///
/// # Errors
/// The file cannot be read, or has no report of memory in JSON. Of several, the last counts.
fn read_baseline(path: &Path) -> Result<Comparison> {
    let shown = path.display();
    let file = open_input(path).with_context(|| format!("cannot read the baseline {shown}"))?;
    let mut last = None;
    let documents = serde_json::Deserializer::from_reader(BufReader::new(file));
    for document in documents.into_iter::<Document>() {
        let document = document.with_context(|| {
            format!("the baseline {shown} is no report in JSON; --format json -o FILE writes one")
        })?;
        last = document.memleak.or(last);
    }
    let Some(Memory { processes }) = last else {
        bail!("the baseline {shown} has no report of memory; --memleak --format json writes one");
    };
    if processes.iter().any(|one| one.omitted_sites.is_some()) {
        say(format_args!(
            "warning: the baseline {shown} has a part of the call sites only; write it without --top"
        ));
    }
    let mut baseline = Comparison::default();
    for process in &processes {
        add_to_baseline(&mut baseline, process, false);
        let allocators = [
            &process.pytorch,
            &process.tensorflow,
            &process.xla,
            &process.rmm,
            &process.cupy,
            &process.onnxruntime,
        ];
        let allocators = allocators.into_iter().flatten();
        allocators.for_each(|allocator| add_to_baseline(&mut baseline, allocator, true));
    }
    Ok(baseline)
}

fn add_to_baseline(baseline: &mut Comparison, holder: &Holder, is_tensor: bool) {
    for site in &holder.sites {
        let key = SiteKey::between_builds(is_tensor, &site.api, &site.stack);
        let amount = Total {
            bytes: site.live_bytes.saturating_add(site.host_bytes),
            allocations: site.live_allocations.saturating_add(site.host_allocations),
        };
        baseline.add(0, key, (&site.api, &site.stack), amount);
    }
}

/// Excuses leaks of call sites that have no more than in the baseline.
fn compare(mut baseline: Comparison, leaks: &mut [Leak]) {
    let key = |leak: &Leak| SiteKey::between_builds(leak.is_tensor, &leak.api, &leak.stack);
    for leak in &*leaks {
        baseline.add(1, key(leak), (&leak.api, &leak.stack), leak.amount);
    }
    for leak in leaks {
        let [before, now] = baseline.0[&key(leak)].totals;
        leak.before = Some(before);
        if now.bytes <= before.bytes && now.allocations <= before.allocations {
            leak.excuse.get_or_insert("as in the baseline".to_owned());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::Report;
    use gpuprobe_model::stack::{Location, bare_frame};

    #[test]
    fn what_a_library_keeps_and_what_ends_by_itself_is_no_leak() {
        let [device, variable] = [MemoryKind::Device, MemoryKind::Static];
        let site = |kinds: &[MemoryKind], is_library, alloc_calls, is_kept| SiteReport {
            kinds: kinds.to_vec(),
            is_library,
            alloc_calls,
            is_kept,
            ..SiteReport::default()
        };
        for (site, expected) in [
            (site(&[device], true, 1, false), Some(ONCE)),
            (site(&[device], true, 2, false), None),
            (site(&[device], true, 1, true), Some(POOL)),
            (site(&[device], false, 1, false), None),
            (site(&[variable], false, 1, false), Some(VARIABLE)),
            (site(&[device, variable], false, 1, false), None),
        ] {
            assert_eq!(excuse(&site, false), expected, "{site:?}");
        }
    }

    #[test]
    fn tensors_are_leaks_but_for_the_workspaces_of_libraries() {
        for (function, expected) in [
            ("at::zeros", None),
            ("at::cuda::getCurrentCUDABlasHandle(bool)", Some(ONCE)),
        ] {
            let frame = Frame {
                function: function.to_owned(),
                ..bare_frame(&Location::python(0))
            };
            let tensor = SiteReport {
                is_kept: true,
                stack: vec![frame],
                ..SiteReport::default()
            };
            assert_eq!(excuse(&tensor, true), expected, "{function}");
        }
    }

    #[test]
    fn the_cache_of_pinned_memory_is_a_pool() {
        let frame = Frame {
            function: "at::CachingHostAllocatorImpl<c10::cuda::CUDAStream>::allocate".to_owned(),
            ..bare_frame(&Location::python(0))
        };
        let mut site = SiteReport {
            kinds: vec![MemoryKind::Pinned],
            alloc_calls: 9,
            stack: vec![frame],
            ..SiteReport::default()
        };
        assert_eq!(excuse(&site, false), Some(POOL));
        site.stack.clear();
        assert_eq!(excuse(&site, false), None);
    }

    #[test]
    fn a_rule_applies_by_what_runs_a_process_and_whether_it_has_ended() {
        let with = |rule: &str, interpreter, exited| {
            let process = ProcessReport {
                interpreter,
                exited,
                ..ProcessReport::default()
            };
            let FailOn { rule, .. } = rule.parse().unwrap();
            rule.applied(&process, RunSource::Live)
                .map(|(name, _)| name)
        };
        let python = Some("Python");
        for (rule, interpreter, exited, expected) in [
            ("leak", python, true, Some("Python: growing")),
            ("leak", python, false, Some("Python: growing")),
            ("leak", None, true, Some("native: never freed")),
            ("leak", None, false, Some("native, still running: growing")),
            ("never-freed", python, true, Some("Python: never freed")),
            ("never-freed", None, false, None),
            ("growing", None, true, Some("native: growing")),
        ] {
            assert_eq!(
                with(rule, interpreter, exited).as_deref(),
                expected,
                "{rule}"
            );
        }
        let parsed = |text: &str| text.parse::<FailOn>();
        assert_eq!(parsed("leak=4K").unwrap().tolerated_bytes, 4096);
        assert!(parsed("leaks").is_err() && parsed("leak=x").is_err() && parsed("").is_err());
    }

    #[test]
    fn suppressions_that_match_nothing_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("known.supp");
        std::fs::write(&file, "libx* # ours\nliby* # theirs\n").unwrap();
        let gate = Gate::open(&GateConfig {
            ignored: vec!["libz*".to_owned()],
            suppressions: vec![file],
            ..GateConfig::default()
        });
        let site = SiteReport {
            owner: "libx.so".to_owned(),
            live: MemorySums {
                gpu: Total {
                    bytes: 0,
                    allocations: 1,
                },
                ..MemorySums::default()
            },
            ..SiteReport::default()
        };
        let mut process = ProcessReport {
            traced: true,
            ..ProcessReport::default()
        };
        process.lists.sites = Some(vec![site]);
        let memory = Memleak {
            processes: vec![process],
            ..Memleak::default()
        };
        let explain = Explain::of(&Report {
            memleak: Some(memory.clone()),
            ..Report::default()
        });
        let result = gate
            .unwrap()
            .judge(&memory, &explain.unwrap(), RunSource::Export)
            .report;
        assert_eq!(result.excused[0].why, "suppressed (ours)");
        assert_eq!(result.unused_suppressions, ["liby*"]);
        assert_eq!(result.rules, ["native: never freed"]);
    }

    #[test]
    fn the_last_report_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reports.json");
        let report = |bytes: u64| {
            format!(
                "{{\"memleak\": {{\"processes\": [{{\"sites\": [{{\"api\": \"cudaMalloc\", \
                 \"live_bytes\": {bytes}, \"host_bytes\": 0, \"live_allocations\": 1, \
                 \"host_allocations\": 0, \"stack\": []}}]}}]}}}}\n"
            )
        };
        let reports = report(9) + &report(4) + "{\"copy\": {}}\n";
        std::fs::write(&path, reports).unwrap();
        let baseline = read_baseline(&path).unwrap();
        let expected = Total {
            bytes: 4,
            allocations: 1,
        };
        let key = SiteKey::between_builds(false, "cudaMalloc", &[]);
        let found = baseline.0.get(&key).map(|site| site.totals[0]);
        assert_eq!(found.unwrap_or_default(), expected);
        for (text, said) in [
            ("{\"copy\": {}}", "no report of memory"),
            ("PID: 7", "no report in JSON"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = read_baseline(&path).err().unwrap();
            assert!(format!("{error:#}").contains(said), "{error:#}");
        }
    }
}
