//! Memory of a process, and how it adds up to nvidia-smi's number.

use std::io::{self, Write};

use gpuprobe_model::text::size;

use super::page::Page;
use crate::memleak::{LiveMemory, NvmlUsage, ProcessReport};
use crate::words::{age, amount, plural, signed_size};

/// `held 3.94 GiB  (peak 4.40 GiB, 31s ago)  + context 0.52 = nvidia-smi 4.46 GiB`.
pub(super) fn write_held(process: &ProcessReport, page: &mut Page<'_>) -> io::Result<()> {
    if !process.traced {
        return writeln!(page, "{}", untraced(process));
    }
    let live = &process.live;
    let what = if process.exited {
        "never freed"
    } else {
        "held"
    };
    let mut parts = vec![format!("{what} {}", size(live.live_bytes))];
    if live.live_allocations > 0 {
        let count = plural(live.live_allocations, "allocation");
        parts[0] += &format!(" in {count}");
    }
    let mut notes = Vec::new();
    if process.peak_bytes > 0 {
        let ago = process.peak_age_ns.filter(|_| !page.is_of_file);
        let ago = ago.map_or(String::new(), |ns| format!(", {} ago", age(ns)));
        notes.push(format!("peak {}{ago}", size(process.peak_bytes)));
    }
    if let Some(change) = process.change_bytes.filter(|_| !process.exited) {
        notes.push(format!("change {}", signed_size(change)));
    }
    if !notes.is_empty() {
        parts.push(format!("({})", notes.join("; ")));
    }
    parts.extend(besides(live));
    match (&process.nvml, process.nvml_age_ns) {
        (Some(nvml), None) => parts.push(sum(nvml, live.live_bytes)),
        (Some(nvml), Some(ns)) => {
            let (ago, tracked) = (age(ns), size(nvml.tracked_bytes));
            parts.push(format!(
                "{ago} ago: {tracked} {}",
                sum(nvml, nvml.tracked_bytes)
            ));
        }
        (None, _) => {}
    }
    writeln!(page, "{}", parts.join("  "))
}

/// Memory of a process of which nothing was traced, as text.
fn untraced(process: &ProcessReport) -> String {
    let Some(nvml) = &process.nvml else {
        return "0 traced since attach; CUDA is loaded".into();
    };
    let context = nvml.context_bytes.map_or(String::new(), |bytes| {
        format!(", of it context about {}", size(bytes))
    });
    let held = size(nvml.used_bytes);
    format!("{held} held (nvidia-smi), 0 traced since attach{context}")
}

/// Memory that takes nothing of a GPU of its own.
fn besides(live: &LiveMemory) -> impl Iterator<Item = String> + use<> {
    let parts = [
        (live.host_bytes, live.host_allocations, "host memory"),
        (
            live.imported_bytes,
            live.imported_allocations,
            "memory of others",
        ),
    ];
    let there = parts.into_iter().filter(|(bytes, _, _)| *bytes > 0);
    there.map(|(bytes, allocations, what)| format!("{what} {}", amount(bytes, allocations)))
}

/// Terms added to `held_bytes` to make nvidia-smi's number, which add up as written, whatever
/// rounding does.
fn sum(nvml: &NvmlUsage, held_bytes: u64) -> String {
    let unit = Unit::of(nvml.used_bytes);
    let hundredths = |bytes| unit.hundredths(bytes);
    let used = hundredths(nvml.used_bytes);
    let tracked = hundredths(nvml.tracked_bytes);
    let mut parts = Vec::new();
    // Managed memory is wherever it is used.
    if held_bytes > nvml.tracked_bytes {
        let managed = held_bytes - nvml.tracked_bytes;
        parts.push(format!("- managed {}", size(managed)));
    }
    let rest = used.abs_diff(tracked);
    if nvml.other_bytes < 0 {
        parts.push(format!("- not at a GPU {}", unit.text(rest)));
    } else {
        let context = nvml.context_bytes.map_or(0, hundredths).min(rest);
        if context > 0 {
            parts.push(format!("+ context {}", unit.text(context)));
        }
        if context < rest || context == 0 {
            let rest = unit.text(rest - context);
            parts.push(format!("+ before attach or outside CUDA {rest}"));
        }
    }
    format!("{} = nvidia-smi {}", parts.join(" "), unit.text(used))
}

/// One unit for all numbers of a line.
#[derive(Clone, Copy)]
struct Unit {
    bytes: u64,
    name: &'static str,
}

impl Unit {
    fn of(largest: u64) -> Self {
        if largest >= 1 << 30 {
            let (bytes, name) = (1 << 30, "GiB");
            Self { bytes, name }
        } else {
            let (bytes, name) = (1 << 20, "MiB");
            Self { bytes, name }
        }
    }

    /// Rounded to hundredths of the unit.
    fn hundredths(self, bytes: u64) -> u64 {
        let unit = u128::from(self.bytes);
        let hundredths = (u128::from(bytes) * 100 + unit / 2) / unit;
        u64::try_from(hundredths).unwrap_or(u64::MAX)
    }

    fn text(self, hundredths: u64) -> String {
        let (whole, part) = (hundredths / 100, hundredths % 100);
        format!("{whole}.{part:02} {}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_line_adds_up_as_it_is_written() {
        let nvml = NvmlUsage {
            used_bytes: 7 * GIB,
            tracked_bytes: 5 * GIB + GIB / 8,
            other_bytes: 2 * (GIB as i64) - (GIB / 8) as i64,
            context_bytes: Some(GIB / 2),
        };
        assert_eq!(
            sum(&nvml, nvml.tracked_bytes),
            "+ context 0.50 GiB + before attach or outside CUDA 1.37 GiB = nvidia-smi 7.00 GiB"
        );
    }

    #[test]
    fn more_tracked_than_used_is_said_too() {
        let nvml = NvmlUsage {
            used_bytes: 10 << 20,
            tracked_bytes: 12 << 20,
            other_bytes: -(2 << 20),
            context_bytes: None,
        };
        assert_eq!(
            sum(&nvml, 12 << 20),
            "- not at a GPU 2.00 MiB = nvidia-smi 10.00 MiB"
        );
        let managed = sum(&nvml, 20 << 20);
        assert!(managed.starts_with("- managed 8.00 MiB"), "{managed}");
    }
}
