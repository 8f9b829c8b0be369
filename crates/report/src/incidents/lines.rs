//! Incidents for people: the same words on standard error, in a report and of a file.

use std::io::{self, Write};

use super::{IncidentReport, IncidentSite, OtherReport, RefusedRequests};
use crate::memleak::Omitted;
use crate::owners::{OwnerReport, UNKNOWN};
use crate::views::text::page::Page;
use crate::words::{Who, amount, plural, short_age, short_model};
use gpuprobe_model::text::{printable, size};
use gpuprobe_os::color::Tone;

/// Other processes that are named, and owners.
const MAX_OTHERS: usize = 10;
const MAX_OWNERS: usize = 5;

/// Words with which an incident begins.
const OUT_OF_MEMORY: &str = "out of memory";

/// Writes incidents.
pub(crate) fn write(
    incidents: &[IncidentReport],
    refused: Option<RefusedRequests>,
    page: &mut Page<'_>,
) -> io::Result<()> {
    for line in incidents.iter().flat_map(IncidentReport::lines) {
        match line.strip_prefix(OUT_OF_MEMORY) {
            Some(rest) => writeln!(page, "{}{rest}", Tone::Bad.paint(OUT_OF_MEMORY))?,
            None => writeln!(page, "{line}")?,
        }
    }
    match refused {
        Some(refused) if refused.incidents > incidents.len() as u64 || !incidents.is_empty() => {
            let calls = plural(refused.calls, "call");
            let incidents = plural(refused.incidents, "incident");
            writeln!(page, "out of memory so far: {incidents}, {calls} refused")
        }
        _ => Ok(()),
    }
}

impl IncidentReport {
    /// The incident in lines, the first of which says it all.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.headline()];
        let mut say = |line: String| lines.push(format!("  {line}"));
        say(self.calls());
        if let Some(gpu) = self.gpu_line() {
            say(gpu);
        }
        say(self.held_line());
        let pytorch = self.pytorch.as_ref();
        let of_tensors = pytorch.filter(|pytorch| !pytorch.sites.is_empty());
        let (name, sites, omitted) = match of_tensors {
            Some(pytorch) => ("T", &pytorch.sites, pytorch.omitted),
            None => ("", &self.sites, self.omitted),
        };
        let pytorch = self.pytorch_lines();
        for said in pytorch {
            say(said);
        }
        for line in site_lines(name, sites, omitted) {
            say(format!("  {line}"));
        }
        if !self.others.is_empty() {
            say(format!("also on {}:", self.place()));
            for other in self.others.iter().take(MAX_OTHERS) {
                say(format!("  {}", other_line(other)));
            }
            if let Some(more) = self.others.len().checked_sub(MAX_OTHERS + 1) {
                say(format!("  ... {} more", more + 1));
            }
        }
        lines
    }

    /// The first line once more: what became of it is known by now.
    pub fn headline(&self) -> String {
        let at = self
            .time
            .as_ref()
            .map(|time| time.format(" at %H:%M:%S").to_string());
        let asked = match self.asked_bytes() {
            Some(bytes) => size(bytes),
            None => "memory of unknown size".into(),
        };
        format!(
            "{OUT_OF_MEMORY} #{}{}: {} was refused {asked} on {} at {}: {}",
            self.id,
            at.unwrap_or_default(),
            program(&self.who()),
            self.place(),
            printable(&self.label),
            self.outcome_words()
        )
    }

    /// PyTorch's request, if it gave up on one; else CUDA's.
    fn asked_bytes(&self) -> Option<u64> {
        let told = self.pytorch.as_ref().and_then(|one| one.gave_up_on_bytes);
        told.or(self.asked_bytes)
    }

    fn who(&self) -> Who<'_> {
        Who {
            pid: self.pid,
            comm: self.comm.as_deref(),
            command: self.command.as_deref(),
            user: self.user.as_deref(),
            uid: self.uid,
            exited: false,
        }
    }

    /// `GPU 0`, or the host.
    fn place(&self) -> String {
        let index = self.physical_index.or(self.device.map(u32::from));
        match (self.host_memory, index) {
            (true, _) => "the host".into(),
            (false, Some(index)) => format!("GPU {index}"),
            (false, None) => "a GPU".into(),
        }
    }

    fn outcome_words(&self) -> String {
        let after = self.outcome_seconds.unwrap_or(0.0);
        let after = match after {
            ..0.001 => "at once".into(),
            after => format!("after {}", short_age((after * 1e9) as u64)),
        };
        let gave_up = self.gave_up();
        let given_up = if gave_up { "PyTorch gave up; " } else { "" };
        match self.outcome {
            "retried" => format!("retried with success {after}"),
            "failed" => "PyTorch gave up".into(),
            "continued" => format!("{given_up}the program went on"),
            "ended" => format!("{given_up}the program ended {after}"),
            _ => "not retried with success so far".into(),
        }
    }

    fn gave_up(&self) -> bool {
        let pytorch = self.pytorch.as_ref();
        pytorch.is_some_and(|pytorch| pytorch.gave_up_on_bytes.is_some())
    }

    /// The failed call, and how often it failed.
    fn calls(&self) -> String {
        let asked = self
            .asked_bytes
            .map_or_else(String::new, |bytes| format!(" of {bytes} bytes"));
        let mut said = match self.result {
            Some(result) => {
                let times = match self.attempts {
                    1 => String::new(),
                    times => format!(" {times} times"),
                };
                format!(
                    "{}{asked} ({}) failed{times} with error {result}",
                    self.api, self.kind
                )
            }
            None => "no call of CUDA failed".into(),
        };
        if self.repeats > 0 {
            let repeats = plural(self.repeats, "more call");
            said += &format!(", and {repeats} right after");
        }
        said
    }

    fn gpu_line(&self) -> Option<String> {
        let gpu = self.gpu.as_ref()?;
        let name = short_model(&gpu.memory.name);
        let index = gpu.memory.index;
        let said = match (gpu.free_bytes, gpu.memory.total_bytes) {
            (Some(free), Some(total)) => format!("{} free of {}", size(free), size(total)),
            _ => "NVML does not say what is free".into(),
        };
        Some(format!("GPU {index} {name}: {said}"))
    }

    fn held_line(&self) -> String {
        let (bytes, allocations) = match self.host_memory {
            true => (self.live.host_bytes, self.live.host_allocations),
            false => (self.live.live_bytes, self.live.live_allocations),
        };
        let mut said = format!("it held {}", amount(bytes, allocations));
        if let Some(here) = self.device_bytes.filter(|here| *here != bytes) {
            said += &format!(", {} of it there", size(here));
        }
        if let Some(used) = self.used_bytes {
            said += &format!("; NVML: {}", size(used));
        }
        // Without call stacks, nobody knows whose it is.
        if self.owners.iter().any(|one| one.owner != UNKNOWN) {
            let owners = self.owners.iter().take(MAX_OWNERS);
            let owner =
                |one: &OwnerReport| format!("{} {}", printable(&one.owner), size(one.bytes));
            let owners: Vec<_> = owners.map(owner).collect();
            said += &format!("; by owner: {}", owners.join(", "));
        }
        said
    }

    fn pytorch_lines(&self) -> Vec<String> {
        let Some(pytorch) = &self.pytorch else {
            return Vec::new();
        };
        let (allocated, reserved) = (pytorch.allocated_bytes, pytorch.reserved_bytes);
        let mut lines = vec![format!(
            "PyTorch cuda:{}: allocated {} of {} reserved",
            pytorch.device,
            size(allocated),
            size(reserved)
        )];
        if let Some(free) = pytorch.largest_free_bytes.filter(|_| pytorch.segments > 0) {
            let cached = size(reserved.saturating_sub(allocated));
            let mut said = match reserved > allocated {
                true => format!("{cached} cached: largest free block {}", size(free)),
                false => "nothing cached".to_owned(),
            };
            if let Some(pinned) = pytorch.pinned_by_small_bytes.filter(|bytes| *bytes > 0) {
                said += &format!(
                    "; {} held by segments with less than 5 % in use",
                    size(pinned)
                );
            }
            lines.push(format!("  {said}"));
        }
        lines
    }
}

/// `python3 train.py (pid 574, ada)`.
fn program(who: &Who<'_>) -> String {
    let user = who.user();
    let user = match user.is_empty() {
        true => user,
        false => format!(", {user}"),
    };
    format!("{} (pid {}{user})", who.program(), who.pid)
}

fn site_lines(name: &str, sites: &[IncidentSite], omitted: Option<Omitted>) -> Vec<String> {
    let width = sites.iter().map(|site| size(site.bytes).len()).max();
    let width = width.unwrap_or(0);
    let line = |site: &IncidentSite| {
        format!(
            "{:>width$}  {name}{}  {}",
            size(site.bytes),
            site.id,
            printable(&site.label)
        )
    };
    let mut lines: Vec<_> = sites.iter().map(line).collect();
    if let Some(left) = omitted {
        let sites = plural(left.sites, "more site");
        lines.push(format!("... {} at {sites}", size(left.bytes)));
    }
    lines
}

fn other_line(other: &OtherReport) -> String {
    let who = Who {
        pid: other.pid,
        comm: other.comm.as_deref(),
        command: other.command.as_deref(),
        user: other.user.as_deref(),
        uid: other.uid,
        exited: false,
    };
    let traced = match (other.used_bytes, other.live_bytes) {
        (Some(_), Some(live)) => format!(", {} traced", size(live)),
        _ => String::new(),
    };
    format!("{}  {}{traced}", size(other.bytes()), program(&who))
}
