//! Verdicts on call sites.

use gpuprobe_cuda::MemoryKind;
use gpuprobe_engine::verdict::{Judgement, StepGrowth, Verdict};
use gpuprobe_model::text::{printable, size};

use super::words::{per_second, seconds};
use super::{VerdictReport, free_bytes};
use crate::memleak::{KernelStep, Memleak, ProcessReport, SiteReport};
use crate::names;
use crate::words::plural;

/// A site and the sites of the same kind in its process.
#[derive(Clone, Copy)]
struct SiteClass<'a> {
    process: &'a ProcessReport,
    memleak: &'a Memleak,
    /// All of the same kind.
    sites: &'a [SiteReport],
    /// Of tensors of this device.
    device: Option<u16>,
}

/// The verdicts on all sites of a process: of PyTorch's segments, tensors tell.
pub(super) fn verdicts(process: &ProcessReport, memleak: &Memleak) -> Vec<VerdictReport> {
    let mut all = Vec::new();
    let tells = !process.pytorch.is_empty() || !process.tensorflow.is_empty();
    let of = SiteClass {
        process,
        memleak,
        sites: process.listed(),
        device: None,
    };
    let own = of.sites.iter().filter(|site| !(tells && site.is_pooled));
    all.extend(own.filter_map(|site| of.verdict(site)));
    for pool in process.pytorch.iter().chain(&process.tensorflow) {
        let of = SiteClass {
            sites: pool.sites.as_deref().unwrap_or(&[]),
            device: Some(pool.device),
            ..of
        };
        all.extend(of.sites.iter().filter_map(|site| of.verdict(site)));
    }
    all
}

impl SiteClass<'_> {
    fn verdict(&self, site: &SiteReport) -> Option<VerdictReport> {
        let found = site.judgement.as_ref().filter(|_| site.live.bytes() > 0)?;
        let verdict = match found.is_leak() || !self.process.exited {
            true => found.verdict,
            false => Verdict::NeverFreed,
        };
        let evidence = match found.verdict {
            Verdict::Growing | Verdict::GrowingPerCycle => self.growth(site, found),
            Verdict::Plateau => vec![format!(
                "{}, has not grown for {}",
                self.held(site),
                seconds(found.quiet_ns)
            )],
            Verdict::OneOff => vec![format!(
                "{}: once, {} ago",
                self.held(site),
                seconds(found.span_ns)
            )],
            Verdict::Cache => vec![format!(
                "{}: freed and allocated again, {} so far{}",
                self.held(site),
                plural(found.frees, "free"),
                usual_age(found)
            )],
            Verdict::FreedLate => vec![format!(
                "{} in {} live far longer than is usual here{}",
                size(found.bytes),
                self.things(site, found.blocks),
                usual_age(found)
            )],
            // The others are not of call sites.
            _ => Vec::new(),
        };
        Some(VerdictReport {
            verdict,
            confidence: found.confidence,
            pid: self.process.pid,
            site: Some(site.id),
            tensors_of_device: self.device,
            label: Some(site.label.clone()),
            owner: Some(site.owner.clone()),
            bytes: found.bytes,
            allocations: found.blocks,
            bytes_per_second: found.bytes_per_second.filter(|_| found.verdict.is_growth()),
            since_ns: found.since_ns,
            evidence,
            advice: verdict.advice(),
            grade: found.severity(),
        })
    }

    /// `744 MiB in 480 tensors`.
    fn held(&self, site: &SiteReport) -> String {
        let (bytes, count) = (site.live.bytes(), site.live.allocations());
        format!("{} in {}", size(bytes), self.things(site, count))
    }

    /// `480 tensors`, `2 handles`.
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
        let mut evidence = vec![format!(
            "growing {} for {}, +{}, no sign of levelling off",
            per_second(rate),
            seconds(found.span_ns),
            size(found.bytes)
        )];
        let stay = self.things(site, found.blocks);
        evidence.push(match (found.verdict, found.frees) {
            (Verdict::GrowingPerCycle, _) => format!(
                "{stay} more after {}, {:.1} each",
                plural(u64::from(found.cycles), "cycle"),
                found.blocks as f64 / f64::from(found.cycles.max(1))
            ),
            (_, 0) => format!("{stay} live, none freed in {}", seconds(found.span_ns)),
            (_, frees) => format!(
                "{stay} stay; {} at the same place were freed{}",
                frees,
                usual_age(found)
            ),
        });
        evidence.extend(site.step.as_ref().map(step));
        evidence.extend(self.neighbour(site));
        let free = free_bytes(self.process, self.memleak).filter(|_| found.is_leak() && rate > 0.0);
        if let Some(free) = free {
            let left_ns = (free as f64 / rate * 1e9) as u64;
            let free = size(free);
            evidence.push(format!(
                "the GPU's free {free} last {} at this rate",
                seconds(left_ns)
            ));
        }
        evidence
    }

    /// Another site of the same file whose memory is freed.
    fn neighbour(&self, site: &SiteReport) -> Option<String> {
        let (file, line) = place(&site.label)?;
        let others = self.sites.iter().filter(|other| other.id != site.id);
        let freed = others.filter_map(|other| {
            let found = other.judgement.as_ref()?;
            let (other_file, other_line) = place(&other.label)?;
            let is_cache = found.verdict == Verdict::Cache && other_file == file;
            let age_ns = found.usual_age_ns.filter(|_| is_cache)?;
            Some((line.abs_diff(other_line), other_file, other_line, age_ns))
        });
        let (_, file, line, age_ns) = freed.min()?;
        Some(format!(
            "its neighbours at {file}:{line} are freed within {}",
            seconds(age_ns)
        ))
    }
}

/// `train.py` and 58 of `train.py:58 training_step`.
fn place(label: &str) -> Option<(&str, u32)> {
    let (file, rest) = label.split_once(':')?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((file, digits.parse().ok()?))
}

/// `1 stays per launch of gemm, over 624 launches`.
fn step(step: &KernelStep) -> String {
    let StepGrowth {
        launches,
        stay,
        steps,
    } = step.growth;
    let stays = match stay {
        1 => "1 stays".to_owned(),
        _ => format!("{stay} stay"),
    };
    let each = match launches {
        1 => "launch".to_owned(),
        _ => format!("{launches} launches"),
    };
    let all = plural(launches.saturating_mul(steps), "launch");
    let kernel = printable(&names::simplify(&step.kernel));
    format!("{stays} per {each} of {kernel}, over {all}")
}

fn usual_age(found: &Judgement) -> String {
    match found.usual_age_ns {
        Some(age_ns) => format!(", nearly all within {}", seconds(age_ns)),
        None => String::new(),
    }
}
