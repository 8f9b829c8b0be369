//! What a live allocation takes of our memory. Nothing that criterion measures; printed.

use super::calls::{Callers, Load, ONE_THREAD, Order};
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

/// By resident memory before and after: the ledger has not existed before, and is kept until the
/// end, so that nothing is counted that an earlier one has left behind.
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
    ] {
        for live in live_sizes(1_000_000) {
            let before = resident_bytes();
            let load = Load::new(live, callers, Order::Random);
            load.check();
            let grown = resident_bytes().saturating_sub(before);
            kept.push(load);
            // Of fewer, what the first of anything takes is most of it.
            if live >= 100_000 {
                println!("memory/{name}/{live}: {} bytes each", grown / live);
            }
        }
    }
}
