//! `--baseline`: what an earlier run never freed, by a report of it in JSON.
//!
//! Call sites of two runs are the same if their functions and files are: neither addresses nor numbers nor
//! lines count, which change with every build. In Python, those of the user's lines count.

use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, Result, bail};
use hashbrown::HashMap;
use serde::Deserialize;

use super::found::LeakedStack;
use crate::fold;
use gpuprobe_model::Total;
use gpuprobe_model::stack::Frame;
use gpuprobe_os::regular::open_input;
use gpuprobe_os::say;
use gpuprobe_stacks::allocators::down_to_start;
use gpuprobe_stacks::cuda::{file_name, is_own};
use gpuprobe_stacks::owners::stem;

/// By what a call site is known again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SiteKey {
    is_tensor: bool,
    /// Functions and their files, innermost first; without a stack, what was called.
    path: Vec<(String, String)>,
}

impl SiteKey {
    fn of(stack: &[Frame], api: &str, is_tensor: bool) -> Self {
        let telling: Vec<_> = fold::telling(stack).collect();
        let frames = match telling.is_empty() {
            true => {
                let shown = down_to_start(stack, |frame| &frame.function);
                stack[..shown]
                    .iter()
                    .filter(|frame| !is_own(frame))
                    .collect()
            }
            false => telling,
        };
        let mut path: Vec<_> = frames.into_iter().map(names).collect();
        if path.is_empty() {
            path.push((api.to_owned(), String::new()));
        }
        Self { is_tensor, path }
    }
}

/// The function of a frame and the file that it is in, without what changes with every build.
fn names(frame: &Frame) -> (String, String) {
    let file = match frame.module.as_str() {
        "" => file_name(frame.file.as_deref().unwrap_or_default()),
        module => stem(file_name(module)),
    };
    // Where there is no name, there is a place in the file, or an address.
    let is_named = !frame.function.contains("+0x") && !frame.function.starts_with("0x");
    let function = if is_named {
        frame.function.as_str()
    } else {
        ""
    };
    (function.to_owned(), file.to_owned())
}

/// Memory that an earlier run never freed, by call site.
pub(super) struct Baseline(HashMap<SiteKey, Total>);

/// Comparison of a leak with the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BaselineGrowth {
    pub(super) before: Total,
    /// There is more of it now: bytes or allocations.
    pub(super) is_more: bool,
}

#[derive(Deserialize)]
struct Document {
    memleak: Option<BaselineMemory>,
}

#[derive(Deserialize)]
struct BaselineMemory {
    processes: Vec<BaselineProcess>,
}

#[derive(Deserialize)]
struct BaselineProcess {
    #[serde(default)]
    sites: Vec<BaselineSite>,
    #[serde(default)]
    pytorch: Vec<BaselineDevice>,
    #[serde(default)]
    tensorflow: Vec<BaselineDevice>,
    omitted_sites: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct BaselineDevice {
    #[serde(default)]
    sites: Vec<BaselineSite>,
}

#[derive(Deserialize)]
struct BaselineSite {
    api: String,
    live_bytes: u64,
    host_bytes: u64,
    live_allocations: u64,
    host_allocations: u64,
    stack: Vec<Frame>,
}

impl Baseline {
    /// Reads the last report in a file.
    ///
    /// # Errors
    /// The file cannot be read, or has no report of memory in JSON.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let file = open_input(path).with_context(|| format!("cannot read the baseline {shown}"))?;
        let mut last = None;
        let documents = serde_json::Deserializer::from_reader(BufReader::new(file));
        for document in documents.into_iter::<Document>() {
            let document = document.with_context(|| {
                format!(
                    "the baseline {shown} is no report in JSON; --format json -o FILE writes one"
                )
            })?;
            last = document.memleak.or(last);
        }
        let Some(memory) = last else {
            bail!(
                "the baseline {shown} has no report of memory; --memleak --format json writes one"
            );
        };
        if memory
            .processes
            .iter()
            .any(|process| process.omitted_sites.is_some())
        {
            say(format_args!(
                "warning: the baseline {shown} has a part of the call sites only; write it without --top"
            ));
        }
        Ok(Self::of(&memory))
    }

    fn of(memory: &BaselineMemory) -> Self {
        let mut sums: HashMap<SiteKey, Total> = HashMap::new();
        let mut add = |site: &BaselineSite, is_tensor| {
            let key = SiteKey::of(&site.stack, &site.api, is_tensor);
            sums.entry(key).or_default().merge(Total {
                bytes: site.live_bytes.saturating_add(site.host_bytes),
                allocations: site.live_allocations.saturating_add(site.host_allocations),
            });
        };
        for process in &memory.processes {
            process.sites.iter().for_each(|site| add(site, false));
            let devices = process.pytorch.iter().chain(&process.tensorflow);
            let tensors = devices.flat_map(|device| &device.sites);
            tensors.for_each(|site| add(site, true));
        }
        Self(sums)
    }

    /// Compares each of `all` with the baseline; stacks with the same key are compared together.
    pub(super) fn compare(&self, all: &[LeakedStack<'_>]) -> Vec<BaselineGrowth> {
        let key = |found: &LeakedStack<'_>| SiteKey::of(found.stack, &found.api, found.is_tensor);
        let keys: Vec<_> = all.iter().map(key).collect();
        let mut sums: HashMap<&SiteKey, Total> = HashMap::new();
        for (key, found) in keys.iter().zip(all) {
            sums.entry(key).or_default().merge(found.amount);
        }
        let grown = keys.iter().map(|key| {
            let before = self.0.get(key).copied().unwrap_or_default();
            let now = sums.get(key).copied().unwrap_or_default();
            let is_more = now.bytes > before.bytes || now.allocations > before.allocations;
            BaselineGrowth { before, is_more }
        });
        grown.collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use gpuprobe_model::stack::{Language, Location, bare_frame};

    fn native(function: &str, module: &str) -> Frame {
        Frame {
            function: function.to_owned(),
            module: module.to_owned(),
            ..bare_frame(&Location::python(0))
        }
    }

    fn python(function: &str, file: &str, line: u32) -> Frame {
        Frame {
            file: Some(file.to_owned()),
            line: Some(line),
            language: Language::Python,
            ..native(function, "")
        }
    }

    #[test]
    fn what_changes_with_a_build_does_not_count() {
        let key = |stack: &[Frame]| SiteKey::of(stack, "cudaMalloc", false);
        let start = native("_start", "/srv/app");
        let main = native("main", "/srv/app");
        let earlier = [
            native("libx.so.1+0x1a3", "/x/libx.so.1"),
            main.clone(),
            start.clone(),
        ];
        let later = [
            native("cudaMalloc", "/x/libcudart.so.12"),
            native("libx.so.2+0x99", "/y/libx.so.2"),
            main.clone(),
        ];
        assert_eq!(key(&earlier), key(&later));
        assert_ne!(key(&earlier), key(&[native("grow", "/x/libx.so.1"), main]));
        let line = |line, native| [native, python("step", "/home/ada/train.py", line)];
        let (zeros, ones) = (
            native("at::zeros", "/libtorch.so"),
            native("at::ones", "/libtorch.so"),
        );
        assert_eq!(key(&line(41, zeros.clone())), key(&line(57, ones)));
        assert_ne!(key(&line(41, zeros.clone())), key(&[zeros]));
        assert_ne!(
            SiteKey::of(&[], "cudaMalloc", false),
            SiteKey::of(&[], "cudaMalloc", true)
        );
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
        let sums = Baseline::read(&path).unwrap().0;
        let expected = Total {
            bytes: 4,
            allocations: 1,
        };
        assert_eq!(sums[&SiteKey::of(&[], "cudaMalloc", false)], expected);
        for (text, said) in [
            ("{\"copy\": {}}", "no report of memory"),
            ("PID: 7", "no report in JSON"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Baseline::read(&path).err().unwrap();
            assert!(format!("{error:#}").contains(said), "{error:#}");
        }
    }
}
