//! `--baseline`: what an earlier run never freed, by a report of it in JSON.

use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{Excuse, Leak};
use crate::compare::Comparison;
use crate::site_key::SiteKey;
use gpuprobe_model::Total;
use gpuprobe_model::stack::Frame;
use gpuprobe_os::regular::open_input;
use gpuprobe_os::say;

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
pub(super) fn read(path: &Path) -> Result<Comparison> {
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
        add(&mut baseline, process, false);
        let allocators = process.pytorch.iter().chain(&process.tensorflow);
        allocators.for_each(|allocator| add(&mut baseline, allocator, true));
    }
    Ok(baseline)
}

fn add(baseline: &mut Comparison, holder: &Holder, is_tensor: bool) {
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
pub(super) fn compare(mut baseline: Comparison, leaks: &mut [Leak]) {
    let key = |leak: &Leak| SiteKey::between_builds(leak.is_tensor, &leak.api, &leak.stack);
    for leak in &*leaks {
        baseline.add(1, key(leak), (&leak.api, &leak.stack), leak.amount);
    }
    for leak in leaks {
        let [before, now] = baseline.get(&key(leak));
        leak.before = Some(before);
        if now.bytes <= before.bytes && now.allocations <= before.allocations {
            leak.excuse.get_or_insert(Excuse::Baseline);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

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
        let baseline = read(&path).unwrap();
        let expected = Total {
            bytes: 4,
            allocations: 1,
        };
        let key = SiteKey::between_builds(false, "cudaMalloc", &[]);
        assert_eq!(baseline.get(&key)[0], expected);
        for (text, said) in [
            ("{\"copy\": {}}", "no report of memory"),
            ("PID: 7", "no report in JSON"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = read(&path).err().unwrap();
            assert!(format!("{error:#}").contains(said), "{error:#}");
        }
    }
}
