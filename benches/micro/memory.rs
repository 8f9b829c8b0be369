//! Memory that gpuprobe needs per live allocation; printed, not measured by criterion.

use super::calls::{Callers, Load, MANY_SITES, ONE_THREAD, Order};
use super::live_sizes;

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: u64 = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib * 1024
}

/// Measures resident memory before and after filling a ledger. The ledgers are kept until the end,
/// so that no freed memory is reused and missing from the difference.
pub(crate) fn of_live() {
    let is_wanted = |word: String| word.starts_with('-') || word == "memory";
    if !std::env::args().skip(1).all(is_wanted) {
        return;
    }
    let with_stacks = Callers {
        threads: 8,
        stacks: 100,
    };
    let mut kept = Vec::new();
    for (name, callers) in [
        ("one thread", ONE_THREAD),
        ("8 threads, 100 stacks", with_stacks),
        ("8 threads, 100,000 stacks", MANY_SITES),
    ] {
        for live in live_sizes(1_000_000) {
            let before = resident_bytes();
            let load = Load::new(live, callers, Order::Random);
            load.check();
            let grown = resident_bytes().saturating_sub(before);
            kept.push(load);
            // With fewer, fixed costs dominate.
            if live >= 100_000 {
                println!("memory/{name}/{live}: {} bytes each", grown / live);
            }
        }
    }
}
