//! Incidents for people: the same words on standard error, in a report and of a file.

use std::io::{self, Write};

use gpuprobe_model::text::{printable, size};
use gpuprobe_os::color::Tone;

use super::page::Page;
use gpuprobe_report::Report;
use gpuprobe_report::incidents::{IncidentReport, OtherReport};
use gpuprobe_report::owners::UNKNOWN;
use gpuprobe_report::words::{Who, amount, plural, short_model};

/// Other processes that are named, and owners.
const MAX_OTHERS: usize = 10;
const MAX_OWNERS: usize = 5;

/// Words with which an incident begins.
const OUT_OF_MEMORY: &str = "out of memory";

/// Writes incidents.
pub(crate) fn write(report: &Report, page: &mut Page<'_>) -> io::Result<()> {
    for line in report.incidents.iter().flat_map(lines) {
        match line.strip_prefix(OUT_OF_MEMORY) {
            Some(rest) => writeln!(page, "{}{rest}", Tone::Bad.paint(OUT_OF_MEMORY))?,
            None => writeln!(page, "{line}")?,
        }
    }
    match report.refused.filter(|refused| refused.incidents > 0) {
        Some(refused) => {
            let calls = plural(refused.calls, "call");
            let incidents = plural(refused.incidents, "incident");
            writeln!(page, "{OUT_OF_MEMORY} so far: {incidents}, {calls} refused")
        }
        None => Ok(()),
    }
}

/// The incident in lines, the first of which says it all.
pub fn lines(incident: &IncidentReport) -> Vec<String> {
    let mut lines = vec![incident.headline()];
    let mut say = |line: String| lines.push(format!("  {line}"));
    say(calls(incident));
    if let Some(gpu) = &incident.gpu {
        let memory = &gpu.memory;
        let name = short_model(&memory.name);
        let free = match gpu.free_bytes.zip(memory.total_bytes) {
            Some((free, total)) => format!("{} free of {}", size(free), size(total)),
            None => "NVML does not say what is free".into(),
        };
        say(format!("GPU {} {name}: {free}", memory.index));
    }
    say(held(incident));
    let (mut name, mut sites, mut omitted) = ("", &incident.sites, incident.omitted);
    if let Some(pytorch) = &incident.pytorch {
        let (allocated, reserved) = (pytorch.allocated_bytes, pytorch.reserved_bytes);
        let sum = format!(
            "allocated {} of {} reserved",
            size(allocated),
            size(reserved)
        );
        say(format!("PyTorch cuda:{}: {sum}", pytorch.device));
        if let Some(free) = pytorch.largest_free_bytes.filter(|_| pytorch.segments > 0) {
            let cached = size(reserved.saturating_sub(allocated));
            let pinned = match pytorch.pinned_by_small_bytes.unwrap_or(0) {
                0 => String::new(),
                bytes => format!(
                    "; {} held by segments with less than 5 % in use",
                    size(bytes)
                ),
            };
            say(format!(
                "  {cached} cached: largest free block {}{pinned}",
                size(free)
            ));
        }
        if !pytorch.sites.is_empty() {
            (name, sites, omitted) = ("T", &pytorch.sites, pytorch.omitted);
        }
    }
    let width = sites
        .iter()
        .map(|site| size(site.live.bytes).len())
        .max()
        .unwrap_or(0);
    for site in sites {
        let label = printable(&site.label);
        say(format!(
            "  {:>width$}  {name}{}  {label}",
            size(site.live.bytes),
            site.id
        ));
    }
    if let Some(left) = omitted {
        let sites = plural(left.sites, "more site");
        say(format!("  ... {} at {sites}", size(left.bytes)));
    }
    if !incident.others.is_empty() {
        say(format!("also on {}:", incident.place()));
    }
    for other in incident.others.iter().take(MAX_OTHERS) {
        say(format!("  {}", other_line(other)));
    }
    if incident.others.len() > MAX_OTHERS {
        say(format!("  ... {} more", incident.others.len() - MAX_OTHERS));
    }
    lines
}

/// The failed call, and how often it failed.
fn calls(incident: &IncidentReport) -> String {
    let IncidentReport { api, kind, .. } = incident;
    let asked = incident
        .asked_bytes
        .map_or(String::new(), |bytes| format!(" of {bytes} bytes"));
    let times = match incident.attempts {
        1 => String::new(),
        times => format!(" {times} times"),
    };
    let said = match incident.result {
        Some(result) => format!("{api}{asked} ({kind}) failed{times} with error {result}"),
        None => "no call of CUDA failed".into(),
    };
    match incident.repeats {
        0 => said,
        repeats => format!("{said}, and {} right after", plural(repeats, "more call")),
    }
}

fn held(incident: &IncidentReport) -> String {
    let live = &incident.live;
    let (bytes, allocations) = match incident.host_memory {
        true => (live.host_bytes, live.host_allocations),
        false => (live.live_bytes, live.live_allocations),
    };
    let mut said = format!("it held {}", amount(bytes, allocations));
    if let Some(here) = incident.device_bytes.filter(|here| *here != bytes) {
        said += &format!(", {} of it there", size(here));
    }
    if let Some(used) = incident.used_bytes {
        said += &format!("; NVML: {}", size(used));
    }
    // Without call stacks, nobody knows whose it is.
    if incident.owners.iter().any(|one| one.owner != UNKNOWN) {
        let owners = incident.owners.iter().take(MAX_OWNERS);
        let owners = owners.map(|one| format!("{} {}", printable(&one.owner), size(one.bytes)));
        said += &format!("; by owner: {}", owners.collect::<Vec<_>>().join(", "));
    }
    said
}

fn other_line(other: &OtherReport) -> String {
    let who = Who::new(
        other.pid,
        other.uid,
        [&other.comm, &other.user, &other.command],
    );
    let traced = match other.used_bytes.and(other.live_bytes) {
        Some(live) => format!(", {} traced", size(live)),
        None => String::new(),
    };
    format!("{}  {}{traced}", size(other.bytes()), who.with_pid())
}
