//! Reports for whoever may read them over a network.

use super::Report;
use crate::memleak::ProcessReport;
use gpuprobe_model::stack::Frame;

/// Maximum digits of an offset in a file; an address has more.
const MAX_OFFSET_DIGITS: usize = 8;

/// `text` without addresses: offsets in a file remain.
pub(crate) fn without_addresses(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("0x") {
        let (before, from) = rest.split_at(at);
        let digits = &from[2..];
        let end = digits
            .find(|c: char| !c.is_ascii_hexdigit())
            .unwrap_or(digits.len());
        let is_offset = before.ends_with('+') && end <= MAX_OFFSET_DIGITS;
        kept += before;
        kept += match end {
            0 => "0x",
            _ if is_offset => &from[..2 + end],
            _ => "?",
        };
        rest = &digits[end..];
    }
    kept + rest
}

impl Report {
    /// Removes command lines, and addresses, with which programs could be attacked.
    pub fn hide_secrets(&mut self) {
        let memleak = self.memleak.iter_mut();
        memleak
            .flat_map(|memleak| &mut memleak.processes)
            .for_each(hide_in_process);
        if let Some(trace) = &mut self.cudatrace {
            for process in &mut trace.processes {
                process.who.command = None;
            }
            for kernel in &mut trace.kernels {
                kernel.handle = 0;
                kernel.name = without_addresses(&kernel.name);
            }
        }
        if let Some(copies) = &mut self.bandwidth_util {
            for one in &mut copies.directions {
                one.who.command = None;
            }
            for site in &mut copies.sites {
                site.label = without_addresses(&site.label);
            }
        }
        for incident in &mut self.incidents {
            incident.hide_secrets();
        }
        let explain = self.explain.iter_mut();
        for verdict in explain.flat_map(|explain| &mut explain.verdicts) {
            verdict.label = verdict.label.as_deref().map(without_addresses);
        }
    }

    /// A report with the explanation only, which this one has no more.
    #[must_use]
    pub fn take_explanation(&mut self) -> Self {
        Self {
            schema: self.schema,
            time: self.time,
            is_final: self.is_final,
            lost: self.lost,
            explain: self.explain.take(),
            ..Self::default()
        }
    }
}

fn hide_in_process(process: &mut ProcessReport) {
    process.who.command = None;
    for pool in &mut process.pools {
        pool.pool = None;
    }
    let pools = process.allocators.iter_mut();
    let of_tensors = pools.filter_map(|pool| pool.lists.sites.as_mut());
    let sites = process.lists.sites.iter_mut();
    for site in sites.chain(of_tensors).flatten() {
        hide_in_site(&mut site.label, &mut site.stack);
    }
}

/// Removes the addresses of a call site.
pub(crate) fn hide_in_site(label: &mut String, stack: &mut [Frame]) {
    *label = without_addresses(label);
    for frame in stack {
        frame.address = 0;
        frame.function = without_addresses(&frame.function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_removed_and_offsets_stay() {
        for (text, kept) in [
            ("train.py:58 training_step", "train.py:58 training_step"),
            ("0x7f1234567890", "?"),
            ("load.c:7 load @0x7f1234567890", "load.c:7 load @?"),
            ("app+0x1a3", "app+0x1a3"),
            ("[jit]+0x7f1234567890 < main", "[jit]+? < main"),
            ("half0xmas", "half0xmas"),
        ] {
            assert_eq!(without_addresses(text), kept, "{text}");
        }
    }
}
