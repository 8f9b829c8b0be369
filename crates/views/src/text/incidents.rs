//! Incidents for people: the same words on standard error, in a report and of a file.

use gpuprobe_model::text::{printable, size};
use gpuprobe_os::color::Tone;

use super::gpu;
use super::memory::owners;
use super::page::Page;
use gpuprobe_report::Report;
use gpuprobe_report::incidents::{IncidentReport, OtherReport};
use gpuprobe_report::words::{amount, plural};

/// Words with which an incident begins.
const OUT_OF_MEMORY: &str = "out of memory";

/// Writes incidents.
pub(crate) fn write(report: &Report, page: &mut Page) {
    for line in report.incidents.iter().flat_map(lines) {
        match line.strip_prefix(OUT_OF_MEMORY) {
            Some(rest) => page.line(Tone::Bad.paint(OUT_OF_MEMORY) + rest),
            None => page.line(line),
        }
    }
    if let Some(refused) = report.refused.filter(|refused| refused.incidents > 0) {
        let calls = plural(refused.calls, "call");
        let incidents = plural(refused.incidents, "incident");
        page.line(format!(
            "{OUT_OF_MEMORY} so far: {incidents}, {calls} refused"
        ));
    }
}

/// The incident in lines, the first of which says it all.
pub fn lines(incident: &IncidentReport) -> Vec<String> {
    let mut lines = vec![incident.headline()];
    let mut say = |line: String| lines.push(format!("  {line}"));
    say(calls(incident));
    if let Some(one) = &incident.gpu {
        let memory = &one.memory;
        let free = match one.free_bytes.zip(memory.total_bytes) {
            Some((free, total)) => format!("{} free of {}", size(free), size(total)),
            None => "NVML does not say what is free".into(),
        };
        let name = gpu(Some(memory.index), Some(&memory.name));
        say(format!("{name}: {free}"));
    }
    say(held(incident));
    let (mut name, mut sites, mut omitted) = ("", &incident.sites, incident.omitted);
    if let Some(pool) = &incident.allocator {
        let (allocated, reserved) = (pool.allocated_bytes, pool.reserved_bytes);
        let (held, of) = (size(allocated), size(reserved));
        let sum = format!("allocated {held} of {of} reserved");
        let of = format!("{} {}", pool.framework.name(), pool.framework.device());
        say(format!("{of}:{}: {sum}", pool.device));
        if let Some(free) = pool.largest_free_bytes.filter(|free| *free > 0) {
            let (cached, free) = (size(reserved.saturating_sub(allocated)), size(free));
            say(format!("  {cached} cached: largest free block {free}"));
        }
        if !pool.sites.is_empty() {
            (name, sites, omitted) = ("T", &pool.sites, pool.omitted);
        }
    }
    for site in sites {
        let (held, label) = (size(site.live.bytes), printable(&site.label));
        say(format!("  {held:>11}  {name}{}  {label}", site.id));
    }
    if let Some(left) = omitted {
        let sites = plural(left.sites, "more site");
        say(format!("  ... {} at {sites}", size(left.bytes)));
    }
    if !incident.others.is_empty() {
        say(format!("also on {}:", incident.place()));
    }
    for other in &incident.others {
        say(format!("  {}", other_line(other)));
    }
    lines
}

/// The failed call, and how often it failed.
fn calls(incident: &IncidentReport) -> String {
    let IncidentReport { api, kind, .. } = incident;
    let asked = incident.asked_bytes;
    let asked = asked.map_or(String::new(), |bytes| format!(" of {bytes} bytes"));
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
        true => (live.host.bytes, live.host.allocations),
        false => (live.gpu.bytes, live.gpu.allocations),
    };
    let mut said = format!("it held {}", amount(bytes, allocations));
    if let Some(here) = incident.device_bytes.filter(|here| *here != bytes) {
        said += &format!(", {} of it there", size(here));
    }
    if let Some(used) = incident.used_bytes {
        said += &format!("; NVML: {}", size(used));
    }
    match owners(&incident.owners) {
        nothing if nothing.is_empty() => said,
        owners => format!("{said}; by owner: {owners}"),
    }
}

fn other_line(other: &OtherReport) -> String {
    let live = other.used_bytes.and(other.live_bytes);
    let traced = live.map_or(String::new(), |live| format!(", {} traced", size(live)));
    format!("{}  {}{traced}", size(other.bytes()), other.who.with_pid())
}
