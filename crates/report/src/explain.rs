//! The answer to "is it leaking, and whose memory is it?", from a report of memory.
//!
//! Nothing is computed here but words: what a call site does was judged by the engine
//! ([`gpuprobe_engine::verdict`]), what is held is in [`Memleak`].

use std::cmp::Reverse;

use indexmap::IndexMap;
use serde::{Serialize, Serializer};

use gpuprobe_cuda::{HandleKind, MemoryKind};
use gpuprobe_engine::verdict::{Confidence, Judgement, Severity, Verdict};
use gpuprobe_model::Total;
use gpuprobe_model::text::{printable, size};

use crate::memleak::{AllocatorReport, HandleReport, Memleak, ProcessReport, SiteReport};
use crate::owners::OwnerReport;
use crate::words::{age, amount, plural};
use crate::{Report, as_text, fold, label};

/// Bytes that nobody is to be bothered with.
const LITTLE: u64 = 16 << 20;
/// A call site with a smaller share of its process's memory need not be waited for.
const LARGE_SHARE: u64 = 100;
/// What is no call site's.
const OUTSIDE: &str = "memory outside of call sites";
/// A pool is fragmented of which little pins at least this share.
const PINNED_SHARE: u64 = 10;

/// Verdicts, and who holds memory.
#[derive(Clone, Debug, Serialize)]
pub struct Explain {
    /// For how long the processes were watched, in a live run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watched_seconds: Option<f64>,
    /// By process, those with the worst first.
    pub verdicts: Vec<VerdictReport>,
    /// Live GPU memory by library or program, over all processes.
    pub owners: Vec<OwnerReport>,
    /// The processes, for people, each with what is printed before its verdicts:
    /// `PID 683 python3 train.py on GPU 0 (H200): 6.20 GiB in use; call sites account for 5.70 GiB`.
    #[serde(skip)]
    pub processes: Vec<(u32, String)>,
}

/// A verdict with its evidence.
#[derive(Clone, Debug, Serialize)]
pub struct VerdictReport {
    /// `growing`, `growing per cycle`, `plateau`, `one-off`, `cache`, `freed late`, `never freed at exit`, `too early`,
    /// `handles left behind`, `growing outside of call sites`, `fragmentation`, `idle context`, `context`, `handles`,
    /// `before attach or outside CUDA`,
    /// `shared`, `out of memory`.
    #[serde(serialize_with = "name_of")]
    pub verdict: Verdict,
    /// `certain`, `likely`, or `too early: N more seconds`.
    #[serde(serialize_with = "as_text")]
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
    /// The call site, if it leaks.
    #[serde(skip)]
    pub leak: Option<Box<SiteReport>>,
    /// The site has a hundredth of the process's memory at most.
    #[serde(skip)]
    pub is_little: bool,
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

fn word_of<S: Serializer>(grade: &Severity, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(grade.word())
}

impl VerdictReport {
    /// Whether it is one that a gate that looks for growth lets nobody through with.
    pub fn is_growth(&self) -> bool {
        self.grade == Severity::Leak
    }
}

/// A verdict on a process and no call site.
fn say(process: &ProcessReport, verdict: Verdict, bytes: u64, evidence: String) -> VerdictReport {
    VerdictReport {
        verdict,
        confidence: Confidence::Certain,
        pid: process.who.pid,
        site: None,
        tensors_of_device: None,
        label: None,
        owner: None,
        leak: None,
        is_little: false,
        bytes,
        allocations: 0,
        bytes_per_second: None,
        since_ns: 0,
        evidence: vec![evidence],
        advice: verdict.advice(),
        grade: verdict.severity(Confidence::Certain),
    }
}

impl Explain {
    /// Explanation of a report of all call sites; `None` without a memory report.
    pub fn of(report: &Report) -> Option<Self> {
        let memleak = report.memleak.as_ref()?;
        let mut processes = Vec::new();
        for process in &memleak.processes {
            let mut found = judged_sites(process, memleak);
            found.extend(notes_on(report, memleak, process));
            for one in &mut found {
                if let Confidence::NotEnough(ns) = one.confidence {
                    (one.verdict, one.grade, one.advice) = (Verdict::TooEarly, Severity::Early, "");
                    one.evidence[0] += &match process.exited {
                        true => "; the process has ended".to_owned(),
                        false => {
                            let more = seconds(ns.next_multiple_of(1_000_000_000));
                            format!("; a verdict needs about {more} more")
                        }
                    };
                }
            }
            found.sort_by_key(|one| {
                let rate = one.bytes_per_second.unwrap_or(0.0);
                (one.grade, Reverse(rate as u64), Reverse(one.bytes))
            });
            if found.is_empty() && process.traced && process.live.is_empty() {
                continue;
            }
            let title = (process.who.pid, title(process, memleak));
            processes.push((found.first().map(|worst| worst.grade), title, found));
        }
        processes.sort_by_key(|(worst, ..)| worst.map_or(u8::MAX, |worst| worst as u8));
        let all = processes
            .into_iter()
            .map(|(_, title, found)| (title, found));
        let (processes, verdicts): (_, Vec<_>) = all.unzip();
        Some(Self {
            watched_seconds: None,
            verdicts: verdicts.into_iter().flatten().collect(),
            owners: memleak.owners.clone(),
            processes,
        })
    }

    /// Whether watching for longer would hardly change the answer: something leaks, and all that holds much memory has
    /// its verdict, or everything has.
    pub fn is_settled(&self) -> bool {
        let has_growth = self.has_growth();
        let is_early = |one: &VerdictReport| one.grade == Severity::Early;
        let mut all = self.verdicts.iter();
        all.len() > 0 && all.all(|one| !is_early(one) || has_growth && one.is_little)
    }

    /// What grows so far, in a few words: `2 places grow so far, most of all train.py:88 step, 10.41 MiB/s`.
    pub fn so_far(&self) -> String {
        let rate = |one: &&VerdictReport| one.bytes_per_second.unwrap_or(0.0);
        let growing = self.verdicts.iter().filter(|one| rate(one) > 0.0);
        let most = growing.clone().max_by(|a, b| rate(a).total_cmp(&rate(b)));
        let Some(most) = most else {
            return "nothing grows so far".to_owned();
        };
        let (word, rate) = (most.grade.word(), per_second(rate(&most)));
        let place = printable(most.label.as_deref().unwrap_or(OUTSIDE));
        match growing.count() {
            1 => format!("{place} grows so far, {rate} ({word})"),
            more => format!("{more} places grow so far, most of all {place}, {rate} ({word})"),
        }
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

/// `PID 683 python3 train.py on GPU 0 (H200): 6.20 GiB in use; call sites account for 5.70 GiB`.
fn title(process: &ProcessReport, memleak: &Memleak) -> String {
    let mut title = format!("PID {} {}", process.who.pid, process.who.program());
    if let Some(user) = &process.who.user {
        title += &format!(" ({})", printable(user));
    }
    let gpus = process.gpus.iter().filter_map(|share| share.index);
    for (number, index) in gpus.enumerate() {
        let before = if number == 0 { " on" } else { "," };
        let gpu = memleak.gpus.iter().find(|gpu| gpu.index == index);
        let model = gpu.map_or(String::new(), |gpu| format!(" ({})", printable(&gpu.name)));
        title += &format!("{before} GPU {index}{model}");
    }
    let live = size(process.live.gpu.bytes);
    title += &match process.nvml {
        _ if let Some(moved) = process.checkpointed => {
            format!(": checkpointed, {} in host memory", size(moved.bytes))
        }
        Some(nvml) => format!(
            ": {} in use; call sites account for {live}",
            size(nvml.used_bytes)
        ),
        None if process.exited => format!(": ended, {live} never freed"),
        None => format!(": {live} at call sites"),
    };
    title
}

/// `58s`; of less than a second, `64 ms`.
fn seconds(ns: u64) -> String {
    match ns {
        0..1_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ => age(ns),
    }
}

/// Verdicts on a process that are not about a call site.
fn notes_on(report: &Report, memleak: &Memleak, process: &ProcessReport) -> Vec<VerdictReport> {
    let mut all = of_nvml(report, memleak, process);
    let objects = process.handles.iter().filter(|one| one.live > 0);
    all.extend(objects.filter_map(|one| handles_left(process, one)));
    all.extend(outside(process));
    all.extend(imported(process));
    all.extend(handles(process));
    for pool in process.pytorch() {
        all.extend(pooled(process, pool));
        all.extend(pinned(process, pool));
        let device = pool.device;
        for (bytes, from) in [
            (pool.before_bytes, "from before gpuprobe attached"),
            (pool.between_bytes(), "without a line (--tensors on has it)"),
        ] {
            let said = format!("{} in tensors of cuda:{device} {from}", size(bytes));
            let one = say(process, Verdict::Outside, bytes, said);
            all.extend((bytes >= LITTLE).then_some(one));
        }
    }
    // The incident itself says who had the memory.
    let refused = report.incidents.iter();
    let refused = refused.filter(|one| one.who.pid == process.who.pid);
    all.extend(refused.map(|incident| {
        let bytes = incident.asked_bytes.unwrap_or(0);
        VerdictReport {
            label: Some(incident.label.clone()),
            ..say(process, Verdict::OutOfMemory, bytes, incident.headline())
        }
    }));
    all
}

/// What NVML reports beyond call sites; of a process that is not traced, everything.
fn of_nvml(report: &Report, memleak: &Memleak, process: &ProcessReport) -> Vec<VerdictReport> {
    let Some(nvml) = process.nvml else {
        return Vec::new();
    };
    if !process.traced {
        let watched = seconds(memleak.options.since_start_ns());
        let has = format!("has {} on the GPU", size(nvml.used_bytes));
        // Of processes that are not traced, nothing is known about launches.
        let trace = report.cudatrace.as_ref();
        let trace = trace.filter(|_| memleak.options.host_wide);
        let is_idle = trace.is_some_and(|trace| {
            let mut launchers = trace.processes.iter();
            launchers.all(|one| one.who.pid != process.who.pid)
        });
        let (verdict, did) = match is_idle {
            true => (Verdict::IdleContext, " and has launched nothing"),
            false => (Verdict::Outside, ", and has allocated nothing"),
        };
        let said = format!("{has}{did} for {watched}");
        return vec![say(process, verdict, nvml.used_bytes, said)];
    }
    let mut all = Vec::new();
    if let Some(bytes) = nvml.context_bytes {
        let said = format!("context {}", size(bytes));
        all.push(say(process, Verdict::Context, bytes, said));
    }
    let other = u64::try_from(nvml.other_bytes).unwrap_or(0);
    let known = nvml.context_bytes.unwrap_or(0);
    let bytes = other.saturating_sub(known.saturating_add(nvml.segment_bytes));
    if bytes >= LITTLE {
        let what = match process.from_start {
            true => "code, what allocations are rounded up to, other APIs",
            false => "from before gpuprobe attached, a context, or outside CUDA",
        };
        let said = format!("{} at no call site: {what}", size(bytes));
        all.push(say(process, Verdict::Outside, bytes, said));
    }
    all
}

fn imported(process: &ProcessReport) -> Option<VerdictReport> {
    let live = process.live.imported;
    let said = format!(
        "{} of other processes",
        amount(live.bytes, live.allocations)
    );
    let exporters = process.imported_from.iter().map(|(who, sum)| {
        let (bytes, program) = (size(sum.bytes), who.program());
        format!("{bytes} of them exported by PID {} {program}", who.pid)
    });
    let mut one = say(process, Verdict::Shared, live.bytes, said);
    one.evidence.extend(exporters);
    one.allocations = live.allocations;
    (live.allocations > 0).then_some(one)
}

/// Physical memory behind handles, by who created these.
fn handles(process: &ProcessReport) -> Vec<VerdictReport> {
    let tells = process.pytorch().next().is_some();
    let mut by_owner: IndexMap<&str, (Total, u64)> = IndexMap::default();
    for site in process.listed() {
        if site.kinds == [MemoryKind::Vmm] && !(tells && site.is_pooled) {
            let (sum, created) = by_owner.entry(&site.owner).or_default();
            sum.merge(site.live.gpu);
            *created += site.alloc_calls;
        }
    }
    let said = by_owner.into_iter().map(|(owner, (live, created))| {
        let (bytes, handles) = (size(live.bytes), plural(live.allocations, "VMM handle"));
        let said = format!("{owner} holds {bytes} as {handles}, of {created} created");
        VerdictReport {
            owner: Some(owner.to_owned()),
            allocations: live.allocations,
            ..say(process, Verdict::Handles, live.bytes, said)
        }
    });
    said.collect()
}

/// Objects that are left behind, and contexts.
fn handles_left(process: &ProcessReport, found: &HandleReport) -> Option<VerdictReport> {
    let growth = found.judgement.as_ref();
    let growth = growth.filter(|found| found.verdict.is_growth());
    let beside = found.beside.filter(|_| !found.kind.is_of_warm_up());
    let mut said = found.said();
    let (verdict, confidence) = match (growth, beside) {
        (Some(growth), _) if growth.confidence.is_enough() => {
            (Verdict::HandlesLeft, growth.confidence)
        }
        (_, Some(_)) => (Verdict::HandlesLeft, Confidence::Likely),
        (Some(growth), None) => (Verdict::HandlesLeft, growth.confidence),
        (None, None) => match found.kind {
            HandleKind::Context => (Verdict::Context, Confidence::Certain),
            HandleKind::PrimaryContext if !found.stack.is_empty() => {
                let gpus = found.devices.iter().map(|device| format!("GPU {device}"));
                let gpus = gpus.collect::<Vec<_>>().join(", ");
                let at = found.place.as_ref().unwrap_or(&found.label);
                said = format!("primary context of {gpus} made at {at}");
                (Verdict::Context, Confidence::Certain)
            }
            _ => return None,
        },
    };
    if let Some(beside) = found.beside.filter(|_| verdict == Verdict::HandlesLeft) {
        let grown = size(beside.bytes);
        said += &format!("; memory outside of call sites grew by {grown} beside them");
    }
    let mut evidence = vec![said];
    if let Some(growth) = growth {
        let (span, ended) = (seconds(growth.span_ns), found.kind.verbs().1);
        let others = plural(growth.frees, "other");
        evidence.push(format!(
            "for {span}, no sign of levelling off; {others} {ended}"
        ));
    }
    let since_ns = growth.map(|growth| growth.since_ns);
    let bytes = found.beside.map_or(0, |it| it.bytes);
    Some(VerdictReport {
        confidence,
        label: Some(found.label.clone()),
        since_ns: since_ns.or(beside.map(|it| it.since_ns)).unwrap_or(0),
        grade: verdict.severity(confidence),
        allocations: found.live,
        evidence,
        ..say(process, verdict, bytes, String::new())
    })
}

/// Growth of what is at no call site, and what keeps pace with it.
fn outside(process: &ProcessReport) -> Option<VerdictReport> {
    let paced = process.handles.iter().filter_map(|one| one.beside);
    let most = paced.max_by_key(|beside| beside.bytes);
    let judged = process.outside.as_ref();
    let sure = judged.filter(|found| most.is_none() || found.confidence.is_enough());
    let (confidence, since_ns, span_ns, bytes) = match (sure, most) {
        (Some(found), _) => (found.confidence, found.since_ns, found.span_ns, found.bytes),
        // That it keeps pace is known sooner.
        (None, Some(it)) => (Confidence::Likely, it.since_ns, it.span_ns, it.bytes),
        (None, None) => return None,
    };
    let rate = bytes as f64 * 1e9 / span_ns.max(1) as f64;
    let (grown, span) = (size(bytes), seconds(span_ns));
    let per_second = per_second(rate);
    let said = format!("{OUTSIDE} grew by {grown} in {span}, {per_second}");
    let is_growing = |judged: &Option<Judgement>| {
        let judged = judged.as_ref();
        judged.is_some_and(|found| found.verdict.is_growth())
    };
    let handles = process.handles.iter();
    let handles = handles.filter(|one| one.beside.is_some() || is_growing(&one.judgement));
    let graphs = process.listed().iter();
    let graphs = graphs
        .filter(|site| site.kinds == [MemoryKind::Graph] && is_growing(&site.judgement))
        .map(|site| {
            let (live, label) = (site.live.all(), &site.label);
            let held = amount(live.bytes, live.allocations);
            format!("graphs asked for {held} at {label}; the driver reserves more for them")
        });
    let evidence = std::iter::once(said)
        .chain(handles.map(HandleReport::said))
        .chain(graphs);
    Some(VerdictReport {
        confidence,
        since_ns,
        bytes_per_second: Some(rate),
        grade: Verdict::OutsideGrowing.severity(confidence),
        evidence: evidence.collect(),
        ..say(process, Verdict::OutsideGrowing, bytes, String::new())
    })
}

/// Verdict on memory that the allocator caches.
fn pooled(process: &ProcessReport, pool: &AllocatorReport) -> Option<VerdictReport> {
    let found = pool.pool.as_ref()?;
    let cached = pool.cached_bytes();
    let lists = &pool.lists;
    let sites = lists.sites.iter().flatten().chain(&lists.freed);
    let mut judged = sites.filter_map(|site| site.judgement.as_ref());
    if cached == 0 || judged.any(|judged| judged.verdict.is_growth()) {
        return None;
    }
    let (device, kept, all) = (pool.device, size(cached), size(pool.reserved_bytes));
    let keeps = format!("PyTorch's allocator of cuda:{device} keeps {kept} of {all} for reuse");
    let (quiet, span) = (seconds(found.quiet_ns), seconds(found.span_ns));
    let leak = Some(found).filter(|found| found.is_leak());
    let (verdict, said) = match leak {
        Some(_) => (
            Verdict::Fragmentation,
            format!("what it takes from CUDA grows, for {span}, and what it hands out does not"),
        ),
        None => (
            Verdict::Cache,
            format!("what it has from CUDA has not grown for {quiet}"),
        ),
    };
    Some(VerdictReport {
        confidence: found.confidence,
        bytes_per_second: leak.and_then(|found| found.bytes_per_second),
        since_ns: leak.map_or(0, |found| found.since_ns),
        owner: leak.is_none().then(|| "libtorch".to_owned()),
        ..say(process, verdict, cached, format!("{keeps}: {said}"))
    })
}

fn pinned(process: &ProcessReport, pool: &AllocatorReport) -> Option<VerdictReport> {
    let bytes = pool.pinned_by_small_bytes;
    let is_much = bytes >= LITTLE && bytes.saturating_mul(PINNED_SHARE) >= pool.reserved_bytes;
    let sites = pool.pinned_by_sites.iter().map(|site| format!("T{site}"));
    let sites: Vec<_> = sites.collect();
    let said = format!(
        "{} are held by segments with less than 5 % in use: {} pin them, of {}; the largest request that \
         fits is {}",
        size(bytes),
        plural(pool.pinned_by_tensors, "tensor"),
        sites.join(", "),
        size(pool.largest_fit_bytes)
    );
    is_much.then(|| VerdictReport {
        site: pool.pinned_by_sites.first().copied(),
        tensors_of_device: Some(pool.device),
        allocations: pool.pinned_by_tensors,
        owner: Some("libtorch".to_owned()),
        ..say(process, Verdict::Fragmentation, bytes, said)
    })
}

/// The verdicts on all sites of a process: of the segments of allocators, tensors tell.
fn judged_sites(process: &ProcessReport, memleak: &Memleak) -> Vec<VerdictReport> {
    let tells = !process.allocators.is_empty();
    let own = process.listed().iter().chain(&process.lists.freed);
    let own = own.filter(|site| !tells || !site.is_pooled);
    let tensors = process.allocators.iter().flat_map(|pool| {
        let sites = pool.lists.sites.iter().flatten().chain(&pool.lists.freed);
        sites.map(|site| (site, Some(pool.device)))
    });
    let all: Vec<_> = own.map(|site| (site, None)).chain(tensors).collect();
    let judged = all.iter().filter_map(|&(site, device)| {
        let mut verdict = judged_site(process, memleak, site, device)?;
        if site.judgement.as_ref()?.verdict.is_growth() {
            let at = verdict.evidence.len().min(2);
            let near = neighbour(site, all.iter().map(|(other, _)| *other));
            verdict.evidence.splice(at..at, near);
        }
        Some(verdict)
    });
    judged.collect()
}

/// The nearest line of the same file whose memory is freed; of sites with a common helper, the lines that call it.
fn neighbour<'a>(site: &SiteReport, all: impl Iterator<Item = &'a SiteReport>) -> Option<String> {
    let freed = all.filter_map(|other| {
        let found = other.judgement.as_ref()?;
        let age_ns = found
            .usual_age_ns
            .filter(|_| found.verdict == Verdict::Cache)?;
        let mut lines = label::lines(&site.stack).zip(label::lines(&other.stack));
        let ((file, line), other) = lines.find(|(own, other)| own != other)?;
        (other.0 == file).then(|| (line.abs_diff(other.1), other.1, age_ns, file))
    });
    let (_, line, age_ns, file) = freed.min()?;
    let (place, age) = (fold::place(file, Some(line)), seconds(age_ns));
    Some(format!("its neighbours at {place} are freed within {age}"))
}

/// The verdict on a site of a process, or on one of its tensors on a device.
fn judged_site(
    process: &ProcessReport,
    memleak: &Memleak,
    site: &SiteReport,
    device: Option<u16>,
) -> Option<VerdictReport> {
    let live = site.live.all();
    let found = site.judgement.as_ref();
    let found = found.filter(|one| one.teardown_ns.is_some() || live.bytes > 0)?;
    let verdict = found.shown();
    let thing = match site.kinds[..] {
        _ if device.is_some() => "tensor",
        [MemoryKind::Vmm] => "VMM handle",
        _ => "allocation",
    };
    let (bytes, blocks) = (size(live.bytes), plural(live.allocations, thing));
    let held = format!("{bytes} in {blocks}");
    let are = ["are", "were"][usize::from(found.teardown_ns.is_some())];
    let (stay, span) = (plural(found.blocks, thing), seconds(found.span_ns));
    let usual = found.usual_age_ns.map(seconds);
    let usual = usual.map_or(String::new(), |age| format!(", most within {age}"));
    let frees = found.frees;
    let said = match found.verdict {
        _ if verdict == Verdict::NeverFreed => {
            let quiet = seconds(found.quiet_ns);
            format!("{held}, the last allocated {quiet} before the end")
        }
        Verdict::Plateau => format!("{held}, has not grown for {}", seconds(found.quiet_ns)),
        Verdict::OneOff => format!("{held}: once, {span} ago"),
        Verdict::Cache => {
            let frees = plural(frees, "free");
            format!("{held}: freed and allocated again, {frees} so far{usual}")
        }
        Verdict::FreedLate => {
            let bytes = size(found.bytes);
            format!("{bytes} in {stay} live far longer than is usual here{usual}")
        }
        Verdict::GrowingPerCycle => {
            let cycles = plural(u64::from(found.cycles), "cycle");
            let each = found.blocks as f64 / f64::from(found.cycles.max(1));
            format!("{stay} more after {cycles}, {each:.1} each")
        }
        Verdict::Growing if frees == 0 => {
            format!("{stay} {are} still alive, none was freed in {span}")
        }
        Verdict::Growing => {
            format!("{stay} {are} still alive; {frees} others from this line were freed{usual}")
        }
        _ => String::new(),
    };
    let mut evidence = vec![said];
    let rate = found.bytes_per_second.filter(|_| found.verdict.is_growth());
    if found.verdict.is_growth() {
        let (rate, grown) = (rate.unwrap_or(0.0), size(found.bytes));
        let rate_text = per_second(rate);
        let growing = format!("growing {rate_text} for {span}, +{grown}, no sign of levelling off");
        evidence.insert(0, growing);
        let free = free_bytes(process, memleak).filter(|_| found.is_leak() && rate > 0.0);
        evidence.extend(free.map(|free| {
            let left = seconds((free as f64 / rate * 1e9) as u64);
            format!(
                "at this rate the GPU's free {} run out in {left}",
                size(free)
            )
        }));
    }
    if let Some(before_ns) = found.teardown_ns {
        let before = match before_ns {
            0..=1_000_000_000 => String::new(),
            _ => format!(", {} before its end", seconds(before_ns)),
        };
        evidence.push(format!("freed as the program ended{before}"));
    }
    if verdict == Verdict::TooEarly {
        let grows = rate.map(|rate| format!(", growing {} so far", per_second(rate)));
        let grows = grows.unwrap_or_default();
        evidence = vec![format!("{held}, seen for {span}{grows}")];
    }
    // No hook tells what was asked for: of a block, more than half.
    if site.has_power_of_two_sizes && site.is_pinned_cache() {
        let rounded = "PyTorch takes powers of two: less than half of it is rounding up";
        evidence.push(rounded.to_owned());
    }
    Some(VerdictReport {
        confidence: found.sureness(),
        leak: found.is_leak().then(|| Box::new(site.clone())),
        is_little: live.bytes.saturating_mul(LARGE_SHARE) <= process.live.all().bytes,
        site: Some(site.id),
        tensors_of_device: device,
        label: Some(site.label.clone()),
        owner: Some(site.owner.clone()),
        allocations: found.blocks,
        bytes_per_second: rate,
        since_ns: found.since_ns,
        evidence,
        grade: found.severity(),
        ..say(process, verdict, found.bytes, String::new())
    })
}

/// Free bytes of the only GPU that the process uses, if NVML tells.
fn free_bytes(process: &ProcessReport, memleak: &Memleak) -> Option<u64> {
    let [share] = process.gpus[..] else {
        return None;
    };
    let mut gpus = memleak.gpus.iter();
    let gpu = gpus.find(|gpu| Some(gpu.index) == share.index)?;
    Some(gpu.total_bytes?.saturating_sub(gpu.used_bytes?))
}

/// `12.4 MiB/s`; of less than one a second, by the hour.
fn per_second(bytes: f64) -> String {
    match bytes < 1024.0 {
        true => format!("{}/h", size((bytes * 3600.0) as u64)),
        false => format!("{}/s", size(bytes as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuprobe_model::stack::{Frame, Language};

    fn site(verdict: Verdict, lines: &[u32]) -> SiteReport {
        let frame = |line: &u32| Frame {
            file: Some("/srv/chat.py".into()),
            line: Some(*line),
            language: Language::Python,
            ..Frame::default()
        };
        SiteReport {
            stack: lines.iter().map(frame).collect(),
            judgement: Some(Judgement {
                verdict,
                confidence: Confidence::Likely,
                since_ns: 0,
                span_ns: 0,
                blocks: 1,
                bytes: 1,
                bytes_per_second: None,
                frees: 9,
                usual_age_ns: Some(16_000_000),
                cycles: 0,
                quiet_ns: 0,
                has_ended: false,
                teardown_ns: None,
            }),
            ..SiteReport::default()
        }
    }

    #[test]
    fn what_grows_so_far_is_said_with_the_place_that_grows_most() {
        let verdict = |line: u32, rate: Option<f64>| VerdictReport {
            label: Some(format!("train.py:{line}")),
            bytes_per_second: rate,
            ..say(
                &ProcessReport::default(),
                Verdict::Growing,
                1,
                String::new(),
            )
        };
        let so_far = |rates: &[Option<f64>]| {
            let explain = Explain {
                watched_seconds: None,
                verdicts: rates
                    .iter()
                    .zip(1..)
                    .map(|(rate, line)| verdict(line, *rate))
                    .collect(),
                owners: Vec::new(),
                processes: Vec::new(),
            };
            explain.so_far()
        };
        assert_eq!(so_far(&[None]), "nothing grows so far");
        assert_eq!(
            so_far(&[None, Some(2048.0)]),
            "train.py:2 grows so far, 2.00 KiB/s (LEAK)"
        );
        assert_eq!(
            so_far(&[Some(2048.0), Some(4096.0)]),
            "2 places grow so far, most of all train.py:2, 4.00 KiB/s (LEAK)"
        );
    }

    #[test]
    fn neighbours_through_one_helper_are_the_lines_that_call_it() {
        let leak = site(Verdict::Growing, &[13, 23, 41]);
        let cache = site(Verdict::Cache, &[13, 30, 24]);
        let far = site(Verdict::Cache, &[99]);
        let kept = site(Verdict::OneOff, &[13, 24]);
        assert_eq!(
            neighbour(&leak, [&leak, &kept, &far, &cache].into_iter()).as_deref(),
            Some("its neighbours at chat.py:30 are freed within 16 ms")
        );
        assert_eq!(neighbour(&leak, [&leak, &kept].into_iter()), None);
    }
}
