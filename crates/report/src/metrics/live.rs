//! Live processes, kept between scrapes: numbers are made again where a process has changed, names and verdicts,
//! which take far longer, now and then.

use std::collections::{HashMap, HashSet};

use super::MetricSources;
use super::gauges::GaugeRows;
use super::labels::{Labels, clean, clean_name};
use super::names::{SiteNames, SiteOwners};
use super::{Metric, MetricLimits};
use crate::explain::VerdictReport;
use crate::memleak::ProcessReport;
use crate::owners::Owners;
use gpuprobe_engine::{Ledger, Process};
use gpuprobe_model::container::pod_uid_in;

/// Verdicts on a process that has changed are given again after this time.
const CHANGED_NS: u64 = 5_000_000_000;
/// On one that has not, after this time, and then after twice as long as it has not changed.
const UNCHANGED_NS: u64 = 10_000_000_000;
/// Longer pauses for many call sites, each of which takes some 20 us: names and verdicts of a process take one per
/// cent of the time at most.
const NS_A_SITE: u64 = 2_000_000;
/// Call sites that are named in one scrape, and those whose verdicts are given again; of one process at least.
const NEW_SITES: usize = 500;
const OLD_SITES: usize = 250;

/// The live processes of the last report, by process id.
#[derive(Debug, Default)]
pub(super) struct LiveProcesses(HashMap<u32, LiveProcess>);

/// A live process, as of the last report.
#[derive(Debug, Default)]
pub(super) struct LiveProcess {
    pub(super) gauges: GaugeRows,
    /// Whether it has called a traced function.
    pub(super) is_traced: bool,
    /// Live bytes on GPUs and of all kinds, and bytes in use according to NVML.
    pub(super) size: (u64, u64, u64),
    /// Distinguishes processes with the same id.
    first_seen_ns: Option<u64>,
    version: u64,
    changed_ns: u64,
    used: Vec<(u32, u64)>,
    owners: SiteOwners,
    sites: SiteNames,
    /// By device, and whether the allocator is PyTorch's.
    tensors: HashMap<(u16, bool), SiteNames>,
    verdicts: Vec<Labels>,
    /// When names and verdicts were last given; 0 if never.
    described_ns: u64,
    /// Number of call sites then.
    described_sites: usize,
    /// Names were missing then, or memory is at call sites without one since.
    is_incomplete: bool,
}

impl LiveProcesses {
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &LiveProcess)> {
        self.0.iter().map(|(pid, process)| (*pid, process))
    }

    /// The processes whose names and verdicts are due: new ones first, then those that have waited longest.
    pub(super) fn due(&self, ledger: &Ledger, now_ns: u64) -> HashSet<u32> {
        let incidents = ledger.incidents().listed(false);
        let refused: HashSet<u32> = incidents.map(|incident| incident.pid).collect();
        let mut due = Vec::new();
        for process in ledger.live_processes() {
            let known = self.0.get(&process.pid);
            let known = known.filter(|known| known.first_seen_ns == process.first_seen_ns);
            let sites = sites_of(process);
            let is_new = known.is_none_or(|known| known.lacks_names(sites));
            let since_ns = known.map_or(0, |known| known.due_ns(process, sites));
            if since_ns <= now_ns || refused.contains(&process.pid) {
                due.push((!is_new, since_ns, process.pid, sites));
            }
        }
        due.sort_unstable();
        let (mut pids, mut taken) = (HashSet::new(), 0);
        for (is_old, _, pid, sites) in due {
            let most = if is_old { OLD_SITES } else { NEW_SITES };
            if !pids.is_empty() && taken + sites > most && !refused.contains(&pid) {
                break;
            }
            taken += sites;
            pids.insert(pid);
        }
        pids
    }

    /// Takes in what has changed since the last report.
    pub(super) fn update(&mut self, sources: &MetricSources<'_>, limits: MetricLimits) {
        let mut owners = Owners::new(sources.symbols);
        let mut verdicts: HashMap<u32, Vec<&VerdictReport>> = HashMap::new();
        let report = sources.report;
        for one in report.explain.iter().flat_map(|explain| &explain.verdicts) {
            verdicts.entry(one.pid).or_default().push(one);
        }
        let listed = report.memleak.iter().flat_map(|memleak| &memleak.processes);
        let mut listed: HashMap<u32, &ProcessReport> = listed
            .filter(|process| !process.exited)
            .map(|process| (process.pid, process))
            .collect();
        let mut verdicts = |pid| {
            let of_process = verdicts.remove(&pid).unwrap_or_default().into_iter();
            of_process
                .take(limits.sites)
                .map(labels_of_verdict)
                .collect()
        };
        let ledger = &sources.state.ledger;
        for process in ledger.live_processes().filter(|_| report.memleak.is_some()) {
            let known = self.0.entry(process.pid).or_default();
            if known.first_seen_ns != process.first_seen_ns || !known.is_traced {
                *known = LiveProcess {
                    first_seen_ns: process.first_seen_ns,
                    is_traced: true,
                    ..LiveProcess::default()
                };
            }
            let described = listed.remove(&process.pid);
            if let Some(described) = described {
                known.describe(described, verdicts(process.pid), sources);
                known.described_sites = sites_of(process);
            }
            let used = sources.used(process.pid);
            if described.is_some() || known.version != process.version || known.used != used {
                known.count(process, used, sources, limits.sites, &mut owners);
            }
        }
        self.0
            .retain(|pid, known| known.is_traced && ledger.process_of(*pid).is_some());
        for (pid, process) in listed.into_iter().filter(|(_, process)| !process.traced) {
            self.0
                .insert(pid, untraced(process, verdicts(pid), sources));
        }
    }
}

impl LiveProcess {
    /// Whether some of its call sites, `sites` in number, may have no name yet.
    fn lacks_names(&self, sites: usize) -> bool {
        self.is_incomplete || sites > self.described_sites
    }

    /// When names and verdicts of the process are due.
    fn due_ns(&self, process: &Process, sites: usize) -> u64 {
        let rest_ns = NS_A_SITE.saturating_mul(sites as u64);
        let pause_ns = if self.lacks_names(sites) {
            rest_ns
        } else if self.version != process.version || self.changed_ns > self.described_ns {
            rest_ns.max(CHANGED_NS)
        } else {
            let quiet_ns = self.described_ns - self.changed_ns;
            rest_ns.max(UNCHANGED_NS).max(quiet_ns)
        };
        match self.described_ns {
            0 => 0,
            described_ns => described_ns.saturating_add(pause_ns),
        }
    }

    /// Takes names and verdicts from a report.
    fn describe(
        &mut self,
        report: &ProcessReport,
        verdicts: Vec<Labels>,
        sources: &MetricSources<'_>,
    ) {
        self.sites.learn(report.listed());
        for (pools, is_pytorch) in [(&report.pytorch, true), (&report.tensorflow, false)] {
            for pool in pools {
                if let Some(sites) = &pool.sites {
                    let known = self.tensors.entry((pool.device, is_pytorch)).or_default();
                    known.learn(sites);
                }
            }
        }
        self.verdicts = verdicts;
        self.described_ns = sources.now_ns.max(1);
        self.is_incomplete = !sources.has_names;
    }

    /// Makes the rows again.
    fn count(
        &mut self,
        process: &Process,
        used: &[(u32, u64)],
        sources: &MetricSources<'_>,
        most: usize,
        owners: &mut Owners<'_>,
    ) {
        if self.version != process.version {
            self.changed_ns = sources.now_ns;
        }
        self.version = process.version;
        self.used = used.to_vec();
        let sums = process.totals.sums;
        self.size = (
            sums.gpu.bytes,
            sums.all().bytes,
            used.iter().map(|(_, bytes)| bytes).sum(),
        );
        let mut rows = GaugeRows::of(labels_of_process(process));
        rows.add_memory(process);
        rows.add_used(used, sources.gpus());
        self.owners.add_to(&mut rows, &process.sites, owners);
        rows.add_pytorch(process);
        let mut unnamed = self
            .sites
            .add_to(&mut rows, Metric::Site, &process.sites, most);
        for pool in process.tensors.iter() {
            if let Some(names) = self.tensors.get(&(pool.device, pool.is_pytorch())) {
                unnamed |= names.add_to(&mut rows, Metric::TensorSite, &pool.blocks.sites, most);
            }
        }
        for verdict in &self.verdicts {
            rows.add(Metric::Verdict, verdict.clone(), 1);
        }
        self.is_incomplete |= unnamed;
        self.gauges = rows;
    }
}

/// A process of which NVML tells, and nothing was traced.
fn untraced(
    process: &ProcessReport,
    verdicts: Vec<Labels>,
    sources: &MetricSources<'_>,
) -> LiveProcess {
    let mut rows = GaugeRows::of(process_labels(
        process.pid,
        process.comm.as_deref(),
        process.uid,
        process.container.as_deref(),
        process.cgroup.as_deref(),
    ));
    let used = sources.used(process.pid);
    rows.add_used(used, sources.gpus());
    for verdict in verdicts {
        rows.add(Metric::Verdict, verdict, 1);
    }
    LiveProcess {
        size: (0, 0, used.iter().map(|(_, bytes)| bytes).sum()),
        gauges: rows,
        ..LiveProcess::default()
    }
}

/// Number of call sites, of tensors, too.
fn sites_of(process: &Process) -> usize {
    let pools = process
        .tensors
        .iter()
        .map(|pool| pool.blocks.sites.iter().len());
    process.sites.iter().len() + pools.sum::<usize>()
}

/// Labels of a traced process.
pub(super) fn labels_of_process(process: &Process) -> Labels {
    let identity = &process.identity;
    process_labels(
        process.pid,
        process.comm.as_deref(),
        process.uid,
        identity.container.as_deref(),
        identity.cgroup.as_deref(),
    )
}

/// The labels that all series of a process have.
pub(super) fn process_labels(
    pid: u32,
    comm: Option<&str>,
    uid: Option<u32>,
    container: Option<&str>,
    cgroup: Option<&str>,
) -> Labels {
    let text = |text: Option<&str>| text.map(clean).unwrap_or_default();
    let pod = cgroup.and_then(pod_uid_in);
    vec![
        ("pid", pid.to_string()),
        ("comm", text(comm)),
        ("uid", uid.map(|uid| uid.to_string()).unwrap_or_default()),
        ("container_id", text(container)),
        ("pod_uid", text(pod.as_deref())),
    ]
}

fn labels_of_verdict(verdict: &VerdictReport) -> Labels {
    let site = verdict.label.as_deref().map(clean_name);
    vec![
        ("verdict", verdict.verdict.name().to_owned()),
        ("confidence", verdict.confidence.name().to_owned()),
        ("site", site.unwrap_or_default()),
    ]
}
