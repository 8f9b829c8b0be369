//! `--fail-on-leak`: whether what was never freed fails a run, as continuous integration wants to know.
//!
//! Each call stack is judged by itself; what is a leak is put together by its call site. `--baseline` is a report of an
//! earlier run in JSON.

mod pattern;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use hashbrown::HashMap;
use serde::Deserialize;

use crate::compare::Comparison;
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

/// Which memory counts as a leak, and the files to write the result to.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Output")]
pub struct GateConfig {
    /// Exit with status 100 after a leak over SIZE.
    ///
    /// Of processes that have ended. What libraries allocate once and what frameworks keep in pools is no leak.
    #[arg(
        id = "fail_on_leak",
        long = "fail-on-leak",
        value_name = "SIZE",
        value_parser = parse_size,
        required = false,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0"
    )]
    pub tolerated_bytes: u64,

    /// With --fail-on-leak, count only growth since FILE, an earlier report in JSON.
    #[arg(long, value_name = "FILE", requires = "fail_on_leak")]
    pub baseline: Option<PathBuf>,

    /// With --fail-on-leak, ignore call sites whose owner, label, function, library or source
    /// file matches GLOB; repeatable.
    #[arg(long = "ignore", value_name = "GLOB", requires = "fail_on_leak")]
    pub ignored: Vec<String>,

    /// Like --ignore for each line of FILE, with the reason after a #; repeatable.
    #[arg(long, value_name = "FILE", requires = "fail_on_leak")]
    pub suppressions: Vec<PathBuf>,

    /// With --fail-on-leak, write junit XML to FILE: a failed test for each leak.
    #[arg(long, value_name = "FILE", requires = "fail_on_leak")]
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
    /// Why it is no leak, in words.
    pub excuse: Option<String>,
}

/// The result: leaks, and memory that is excused.
#[derive(Debug, Default)]
pub struct GateResult {
    /// The leaks, most bytes first.
    pub leaks: Vec<Leak>,
    /// Their sum.
    pub leaked: Total,
    /// Bytes that may be leaked.
    pub tolerated_bytes: u64,
    /// Memory that is no leak, by the reason, with its number of call stacks.
    pub excused: Vec<(String, u64, Total)>,
    /// Patterns of suppression files that nothing matched.
    pub unused: Vec<String>,
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

/// Options of a report that [`Gate::judge`] can read, whatever else is asked for: every call stack.
pub fn options(options: Options) -> Options {
    Options {
        top: None,
        view: View {
            group: Some(GroupBy::NativeStack),
            ..View::default()
        },
        allocations: false,
        explains: false,
        host_wide: false,
        ..options
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
            baseline: config.baseline.as_deref().map(read_baseline).transpose()?,
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
        let mut all = never_freed(memleak, is_of_file);
        if let Some(baseline) = self.baseline {
            compare(baseline, &mut all);
        }
        let mut leaks = Vec::new();
        let (mut result, mut patterns) = (self.result, self.patterns);
        for mut leak in all {
            if let Some(pattern) = patterns.iter_mut().find(|one| one.matches(&leak)) {
                pattern.is_unused = false;
                leak.excuse = Some(format!("suppressed ({})", printable(&pattern.name)));
            }
            let Some(why) = &leak.excuse else {
                leaks.push(leak);
                continue;
            };
            let mut known = result.excused.iter_mut();
            match known.find(|(known, ..)| known == why) {
                Some((_, stacks, sum)) => {
                    *stacks += 1;
                    sum.merge(leak.amount);
                }
                None => result.excused.push((why.clone(), 1, leak.amount)),
            }
        }
        let unused = patterns.iter().filter(|pattern| pattern.is_unused);
        result.unused = unused.map(|pattern| printable(&pattern.text)).collect();
        result.leaks = merge_by_call_site(leaks);
        for leak in &result.leaks {
            result.leaked.merge(leak.amount);
        }
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

/// Beginnings of the names of functions of PyTorch that hand out memory to cuBLAS, once for each handle and
/// stream, and keep it.
const WORKSPACES: [&str; 2] = [
    "at::cuda::getCurrentCUDABlasHandle",
    "at::cuda::getCUDABlasLtWorkspace",
];

const ONCE: &str = "allocated once by a library";
const VARIABLE: &str = "of variables of modules";
const POOL: &str = "in pools of frameworks, whose tensors are judged where these are told";

/// Why memory of a site is no leak; none if it is one.
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
    let shown = site.judgement.as_ref().and_then(Judgement::shown);
    let is_once = site.alloc_calls == 1 || shown == Some(Verdict::OneOff);
    if !site.kinds.is_empty() && site.kinds.iter().copied().all(is_variable) {
        return Some(VARIABLE);
    }
    match is_tensor {
        true => site.stack.iter().any(is_workspace).then_some(ONCE),
        false if site.is_kept => Some(POOL),
        false => (site.is_library && is_once).then_some(ONCE),
    }
}

/// All that processes never freed: those that have ended, or, of a file, all.
fn never_freed(memleak: &Memleak, is_of_file: bool) -> Vec<Leak> {
    let mut found = Vec::new();
    let mut listed = Total::default();
    for process in &memleak.processes {
        listed.merge(amount(&process.live));
        if !process.exited && !is_of_file {
            continue;
        }
        let sites = process.listed().iter();
        found.extend(sites.map(|site| leak_at(process, site, false)));
        let devices = process.pytorch.iter().chain(&process.tensorflow);
        let tensors = devices.flat_map(|device| device.sites.iter().flatten());
        found.extend(tensors.map(|site| leak_at(process, site, true)));
    }
    // Ended processes of which the call stacks are no longer known.
    let all = amount(&memleak.live);
    found.push(Leak {
        program: "processes that ended long ago".to_owned(),
        pids: vec![0],
        label: "call sites that are no longer known".to_owned(),
        owner: owners::UNKNOWN.to_owned(),
        amount: Total {
            bytes: all.bytes.saturating_sub(listed.bytes),
            allocations: all.allocations.saturating_sub(listed.allocations),
        },
        stacks: 1,
        ..Leak::default()
    });
    found.retain(|one| one.amount.allocations > 0);
    found
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
        excuse: excuse(site, is_tensor).map(str::to_owned),
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
        let allocators = process.pytorch.iter().chain(&process.tensorflow);
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
        let process = ProcessReport {
            sites: Some(vec![site]),
            ..ProcessReport::default()
        };
        let memory = Memleak {
            processes: vec![process],
            ..Memleak::default()
        };
        let result = gate.unwrap().judge(&memory, true);
        assert_eq!(result.excused[0].0, "suppressed (ours)");
        assert_eq!(result.unused, ["liby*"]);
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
