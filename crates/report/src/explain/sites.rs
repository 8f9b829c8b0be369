//! Verdicts on call sites.

use gpuprobe_cuda::MemoryKind;
use gpuprobe_engine::verdict::{Judgement, Verdict};
use gpuprobe_model::text::size;

use super::{VerdictReport, seconds};
use crate::memleak::{Memleak, ProcessReport, SiteReport};
use crate::words::plural;
use crate::{fold, label};

/// The sites of a process, or those of its tensors on a device.
#[derive(Clone, Copy)]
struct Sites<'a> {
    process: &'a ProcessReport,
    memleak: &'a Memleak,
    all: &'a [SiteReport],
    device: Option<u16>,
}

/// The verdicts on all sites of a process: of the segments of allocators, tensors tell.
pub(super) fn verdicts(process: &ProcessReport, memleak: &Memleak) -> Vec<VerdictReport> {
    let pools = process.pytorch.iter().chain(&process.tensorflow);
    let tells = pools.clone().next().is_some();
    let own = Sites {
        process,
        memleak,
        all: process.listed(),
        device: None,
    };
    let tensors = pools.map(|pool| Sites {
        all: pool.sites.as_deref().unwrap_or_default(),
        device: Some(pool.device),
        ..own
    });
    let mut verdicts = Vec::new();
    for sites in std::iter::once(own).chain(tensors) {
        let is_told = |site: &&SiteReport| tells && sites.device.is_none() && site.is_pooled;
        let judged = sites.all.iter().filter(|site| !is_told(site));
        verdicts.extend(judged.filter_map(|site| sites.verdict(site)));
    }
    verdicts
}

impl Sites<'_> {
    fn verdict(&self, site: &SiteReport) -> Option<VerdictReport> {
        let found = site.judgement.as_ref().filter(|_| site.live.bytes() > 0)?;
        let verdict = match found.is_leak() || !self.process.exited {
            true => found.verdict,
            false => Verdict::NeverFreed,
        };
        let things = self.things(site, site.live.allocations());
        let held = format!("{} in {things}", size(site.live.bytes()));
        let usual = usual_age(found);
        let evidence = match found.verdict {
            Verdict::Plateau => format!("{held}, has not grown for {}", seconds(found.quiet_ns)),
            Verdict::OneOff => format!("{held}: once, {} ago", seconds(found.span_ns)),
            Verdict::Cache => {
                let frees = plural(found.frees, "free");
                format!("{held}: freed and allocated again, {frees} so far{usual}")
            }
            Verdict::FreedLate => {
                let late = self.things(site, found.blocks);
                let bytes = size(found.bytes);
                format!("{bytes} in {late} live far longer than is usual here{usual}")
            }
            _ => String::new(),
        };
        let evidence = match found.verdict.is_growth() {
            true => self.growth(site, found),
            false => vec![evidence],
        };
        Some(VerdictReport {
            confidence: found.confidence,
            site: Some(site.id),
            tensors_of_device: self.device,
            label: Some(site.label.clone()),
            owner: Some(site.owner.clone()),
            allocations: found.blocks,
            bytes_per_second: found.bytes_per_second.filter(|_| found.verdict.is_growth()),
            since_ns: found.since_ns,
            evidence,
            grade: found.severity(),
            ..VerdictReport::of_process(self.process, verdict, found.bytes, String::new())
        })
    }

    /// `480 tensors`, `2 VMM handles`.
    fn things(&self, site: &SiteReport, count: u64) -> String {
        let thing = match site.kinds[..] {
            _ if self.device.is_some() => "tensor",
            [MemoryKind::Vmm] => "VMM handle",
            _ => "allocation",
        };
        plural(count, thing)
    }

    fn growth(&self, site: &SiteReport, found: &Judgement) -> Vec<String> {
        let rate = found.bytes_per_second.unwrap_or(0.0);
        let span = seconds(found.span_ns);
        let stay = self.things(site, found.blocks);
        let growing = format!(
            "growing {} for {span}, +{}, no sign of levelling off",
            per_second(rate),
            size(found.bytes)
        );
        let stays = match (found.verdict, found.frees) {
            (Verdict::GrowingPerCycle, _) => {
                let cycles = plural(u64::from(found.cycles), "cycle");
                let each = found.blocks as f64 / f64::from(found.cycles.max(1));
                format!("{stay} more after {cycles}, {each:.1} each")
            }
            (_, 0) => format!("{stay} live, none freed in {span}"),
            (_, frees) => {
                let usual = usual_age(found);
                format!("{stay} stay; {frees} at the same place were freed{usual}")
            }
        };
        let mut evidence = vec![growing, stays];
        evidence.extend(self.neighbour(site));
        if let Some(free) = self.free_bytes().filter(|_| found.is_leak() && rate > 0.0) {
            let left = seconds((free as f64 / rate * 1e9) as u64);
            let free = size(free);
            evidence.push(format!("the GPU's free {free} last {left} at this rate"));
        }
        evidence
    }

    /// Free bytes of the only GPU that the process uses, if NVML tells.
    fn free_bytes(&self) -> Option<u64> {
        let [share] = self.process.gpus[..] else {
            return None;
        };
        let mut gpus = self.memleak.gpus.iter();
        let gpu = gpus.find(|gpu| Some(gpu.index) == share.index)?;
        Some(gpu.total_bytes?.saturating_sub(gpu.used_bytes?))
    }

    /// The nearest line of the same file whose memory is freed.
    fn neighbour(&self, site: &SiteReport) -> Option<String> {
        let (file, line) = label::line(&site.stack)?;
        let others = self.all.iter().filter(|other| other.id != site.id);
        let freed = others.filter_map(|other| {
            let found = other.judgement.as_ref()?;
            let (other_file, other_line) = label::line(&other.stack)?;
            let is_cache = found.verdict == Verdict::Cache && other_file == file;
            let age_ns = found.usual_age_ns.filter(|_| is_cache)?;
            Some((line.abs_diff(other_line), other_line, age_ns))
        });
        let (_, line, age_ns) = freed.min()?;
        let (place, age) = (fold::place(file, Some(line)), seconds(age_ns));
        Some(format!("its neighbours at {place} are freed within {age}"))
    }
}

/// `12.4 MiB/s`; of less than one a second, by the hour.
fn per_second(bytes: f64) -> String {
    match bytes < 1024.0 {
        true => format!("{}/h", size((bytes * 3600.0) as u64)),
        false => format!("{}/s", size(bytes as u64)),
    }
}

fn usual_age(found: &Judgement) -> String {
    let usual = found.usual_age_ns.map(seconds);
    usual.map_or(String::new(), |age| format!(", nearly all within {age}"))
}
