//! Wording of the verdicts.

use gpuprobe_model::text::{printable, size};

use crate::memleak::{Memleak, ProcessReport};
use crate::words::age;

/// `58s`; of less than a second, `0.1s`.
pub(super) fn seconds(ns: u64) -> String {
    match ns {
        0..1_000_000_000 => format!("{:.3}s", ns as f64 / 1e9),
        _ => age(ns),
    }
}

/// `12.4 MiB/s`; of less than one a second, by the hour.
pub(super) fn per_second(bytes: f64) -> String {
    match bytes < 1024.0 {
        true => format!("{}/h", size((bytes * 3600.0) as u64)),
        false => format!("{}/s", size(bytes as u64)),
    }
}

/// `PID 683 python3 train.py on GPU 0 (H200): 6.20 GiB used, of it 5.70 GiB explained by call sites`.
pub(super) fn title(process: &ProcessReport, memleak: &Memleak) -> String {
    let mut title = format!("PID {} {}", process.pid, process.who().program());
    if let Some(user) = &process.user {
        title += &format!(" ({})", printable(user));
    }
    let gpus = process.gpus.iter().filter_map(|share| share.index);
    let models = gpus.map(|index| {
        let gpu = memleak.gpus.iter().find(|gpu| gpu.index == index);
        let model = gpu.map_or(String::new(), |gpu| format!(" ({})", printable(&gpu.name)));
        format!("GPU {index}{model}")
    });
    let models: Vec<_> = models.collect();
    if !models.is_empty() {
        title += &format!(" on {}", models.join(", "));
    }
    let live = size(process.live.live_bytes);
    title += &match process.nvml {
        Some(nvml) => format!(
            ": {} used, of it {live} explained by call sites",
            size(nvml.used_bytes)
        ),
        None if process.exited => format!(": ended, {live} never freed"),
        None => format!(": {live} at call sites"),
    };
    title
}
