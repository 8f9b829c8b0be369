//! Names of call sites and verdicts, which take far longer than numbers: reports of some processes at a time give
//! them, and they are kept between scrapes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::MetricSources;
use super::labels::{Labels, clean_name};
use crate::explain::VerdictReport;
use crate::memleak::{ProcessReport, SiteReport};
use gpuprobe_engine::{Ledger, Process, Sites};

/// A process that has changed is described again after this time, and one that has not.
const CHANGED_NS: u64 = 5_000_000_000;
const UNCHANGED_NS: u64 = 60_000_000_000;
/// Longer pauses for many call sites, each of which takes some 20 us: descriptions of a process take one per cent of
/// the time at most.
const NS_A_SITE: u64 = 2_000_000;
/// Call sites that are described in one scrape; of one process at least.
const SITES: usize = 500;

/// The live processes that a report has described, by process id.
#[derive(Debug, Default)]
pub(super) struct DescribedProcesses(HashMap<u32, DescribedProcess>);

/// A live process, as a report had it.
#[derive(Debug)]
pub(super) struct DescribedProcess {
    pub(super) sites: SiteNames,
    /// By device, and whether the allocator is PyTorch's.
    pub(super) tensors: HashMap<(u16, bool), SiteNames>,
    pub(super) verdicts: Vec<Labels>,
    /// Distinguishes processes with the same id.
    first_seen_ns: Option<u64>,
    version: u64,
    made_ns: u64,
    /// Number of call sites then.
    site_count: usize,
    /// Whether all functions had their names.
    has_names: bool,
}

impl DescribedProcesses {
    /// The live processes that are due: new ones first, then those that have waited longest. Refused requests are in
    /// one report only.
    pub(super) fn due(&self, ledger: &Ledger, now_ns: u64) -> HashSet<u32> {
        let incidents = ledger.incidents.listed(false);
        let refused: HashSet<u32> = incidents.map(|incident| incident.pid).collect();
        let live = ledger.live_processes().map(|process| {
            let due_ns = self.get(process).map_or(0, |known| known.due_ns(process));
            (due_ns, process.pid, count_sites(process))
        });
        let mut due: Vec<_> = live.filter(|(due_ns, ..)| *due_ns <= now_ns).collect();
        due.sort_unstable();
        let mut sites = 0;
        let fits = |(_, _, count): &(u64, u32, usize)| {
            let is_first = sites == 0;
            sites += count;
            is_first || sites <= SITES
        };
        let pids = due.into_iter().take_while(fits).map(|(_, pid, _)| pid);
        pids.chain(refused).collect()
    }

    /// The description of a live process.
    pub(super) fn get(&self, process: &Process) -> Option<&DescribedProcess> {
        let known = self.0.get(&process.pid)?;
        (known.first_seen_ns == process.first_seen_ns).then_some(known)
    }

    /// Takes in the processes of a report.
    pub(super) fn update(&mut self, sources: &MetricSources<'_>, most_verdicts: usize) {
        let ledger = &sources.state.ledger;
        let listed = sources
            .report
            .memleak
            .iter()
            .flat_map(|memleak| &memleak.processes);
        for report in listed.filter(|process| process.traced && !process.exited) {
            if let Some(process) = ledger.process_of(report.pid) {
                let verdicts = verdicts(sources, report.pid, most_verdicts);
                let made = DescribedProcess::new(process, report, verdicts, sources);
                self.0.insert(report.pid, made);
            }
        }
        self.0.retain(|pid, _| ledger.process_of(*pid).is_some());
    }
}

impl DescribedProcess {
    fn new(
        process: &Process,
        report: &ProcessReport,
        verdicts: Vec<Labels>,
        sources: &MetricSources<'_>,
    ) -> Self {
        let pools = [(&report.pytorch, true), (&report.tensorflow, false)];
        let tensors = pools.into_iter().flat_map(|(pools, is_pytorch)| {
            pools.iter().map(move |pool| {
                let sites = pool.sites.as_deref().unwrap_or_default();
                ((pool.device, is_pytorch), SiteNames::new(sites))
            })
        });
        Self {
            sites: SiteNames::new(report.listed()),
            tensors: tensors.collect(),
            verdicts,
            first_seen_ns: process.first_seen_ns,
            version: process.version,
            made_ns: sources.now_ns,
            site_count: count_sites(process),
            has_names: sources.has_names,
        }
    }

    /// When it is described again: as soon as there may be sites without a name.
    fn due_ns(&self, process: &Process) -> u64 {
        let sites = count_sites(process);
        let least_ns = NS_A_SITE.saturating_mul(sites as u64);
        let pause_ns = if !self.has_names || sites > self.site_count {
            least_ns
        } else if self.version != process.version {
            least_ns.max(CHANGED_NS)
        } else {
            least_ns.max(UNCHANGED_NS)
        };
        self.made_ns.saturating_add(pause_ns)
    }
}

/// Labels of the gravest verdicts on a process.
pub(super) fn verdicts(sources: &MetricSources<'_>, pid: u32, most: usize) -> Vec<Labels> {
    let explained = sources.report.explain.iter();
    let verdicts = explained.flat_map(|explain| explain.of_process(pid));
    verdicts.take(most).map(of_verdict).collect()
}

fn of_verdict(verdict: &VerdictReport) -> Labels {
    let site = verdict.label.as_deref().map(clean_name);
    vec![
        ("verdict", verdict.verdict.name().to_owned()),
        ("confidence", verdict.confidence.name().to_owned()),
        ("site", site.unwrap_or_default()),
    ]
}

/// Number of call sites, of tensors, too.
fn count_sites(process: &Process) -> usize {
    let pools = process.tensors.iter().map(|pool| &pool.blocks.sites);
    let all = std::iter::once(&process.sites).chain(pools);
    all.map(|sites| sites.iter().len()).sum()
}

/// Names of call sites. Several sites may have the same.
#[derive(Debug, Default)]
pub(super) struct SiteNames {
    /// Indices of names, by the site's number in the engine.
    by_site: HashMap<u32, usize>,
    names: Vec<SiteName>,
}

/// Name of a call site.
#[derive(Debug)]
pub(super) struct SiteName {
    pub(super) owner: String,
    /// Labels of its series: `site` and `owner`.
    pub(super) labels: Arc<Labels>,
}

impl SiteNames {
    fn new(listed: &[SiteReport]) -> Self {
        let mut made = Self::default();
        let mut known = HashMap::new();
        for site in listed {
            let (label, owner) = (clean_name(&site.label), clean_name(&site.owner));
            let index = *known
                .entry((label, owner))
                .or_insert_with_key(|(label, owner)| {
                    made.names.push(SiteName {
                        owner: owner.clone(),
                        labels: Arc::new(vec![("site", label.clone()), ("owner", owner.clone())]),
                    });
                    made.names.len() - 1
                });
            let ids = site.own_ids.iter();
            made.by_site.extend(ids.map(|&id| (id, index)));
        }
        made
    }

    /// Live GPU memory of `sites` by name, the largest first, and that of sites without a name.
    pub(super) fn held(&self, sites: &Sites) -> (Vec<(u64, &SiteName)>, u64) {
        let mut sums = vec![0_u64; self.names.len() + 1];
        for (number, site) in (0..).zip(sites.iter()) {
            let index = self.by_site.get(&number).copied();
            let sum = &mut sums[index.unwrap_or(self.names.len())];
            *sum = sum.saturating_add(site.live.gpu.bytes);
        }
        let unnamed = sums.pop().unwrap_or(0);
        let mut held: Vec<_> = sums.into_iter().zip(&self.names).collect();
        held.retain(|(bytes, _)| *bytes > 0);
        held.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        (held, unnamed)
    }
}
