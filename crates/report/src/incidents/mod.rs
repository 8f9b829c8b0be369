//! Out of memory: from the engine's incidents to a report.

mod build;

use std::borrow::Cow;

use chrono::{DateTime, FixedOffset};
use serde::Serialize;

use crate::clock_micros;
use crate::memleak::{LiveByKind, LiveMemory, Omitted};
use crate::owners::OwnerReport;
use crate::public::hide_in_site;
use crate::words::{Who, short_age};
use gpuprobe_model::stack::Frame;
use gpuprobe_model::text::{printable, size};
use gpuprobe_model::{GpuMemory, Total};

pub(crate) use build::build;
pub use build::{locations_of, report};

/// Requests for memory that were refused, of all processes since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RefusedRequests {
    /// Calls of CUDA that failed for want of memory.
    pub calls: u64,
    /// Incidents, whether they are still known or not.
    pub incidents: u64,
}

/// A request for memory that was refused, with its retries, and what became of it.
#[derive(Clone, Debug, Serialize)]
pub struct IncidentReport {
    /// Its number in the run, from 1.
    pub id: u64,
    /// When it was refused first; none if a file does not tell times of day.
    #[serde(serialize_with = "clock_micros")]
    pub time: Option<DateTime<FixedOffset>>,
    /// Process id, as the host has it.
    pub pid: u32,
    /// Id of the thread that asked.
    pub tid: u32,
    /// User id, if known.
    pub uid: Option<u32>,
    /// Name of the user, if known.
    pub user: Option<String>,
    /// Name of the process, if known.
    pub comm: Option<String>,
    /// Its command line, of which the end may be missing, if known.
    pub command: Option<String>,
    /// The id of its container, if it is in one.
    pub container: Option<String>,
    /// The function that was called, as the user called it.
    pub api: Cow<'static, str>,
    /// CUDA's error; none if the allocator of a framework gave up without a call.
    pub result: Option<i32>,
    /// Kind of memory asked for.
    pub kind: &'static str,
    /// Bytes that were asked for, if the call says how many.
    pub asked_bytes: Option<u64>,
    /// Calls that failed: more than one if it was retried.
    pub attempts: u64,
    /// Further calls that failed right after, and are in no incident of their own.
    pub repeats: u64,
    /// Outcome: `pending`, `retried` (with success), `failed` (a framework's allocator gave up),
    /// `continued` (the program went on without), `ended` (the process ended and had not gone on).
    pub outcome: &'static str,
    /// Seconds from the first refusal until then.
    pub outcome_seconds: Option<f64>,
    /// Memory of the host was asked for.
    pub host_memory: bool,
    /// Device index as CUDA numbers it for the process, if known; none for memory of the host.
    pub device: Option<u16>,
    /// Index on the host, as `nvidia-smi` shows it, if known.
    pub physical_index: Option<u32>,
    /// UUID of the GPU or of the part of it that was given to the process, if known.
    pub uuid: Option<String>,
    /// Label of the line at which it was asked for.
    pub label: String,
    /// The call stack, innermost first; empty if it is not known.
    pub stack: Vec<Frame>,
    /// It reaches the beginning of the thread.
    pub complete: bool,
    /// The GPU as NVML had it at that moment, if NVML is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuState>,
    /// Bytes of it that the process used, as NVML says.
    pub used_bytes: Option<u64>,
    /// Memory that the process held.
    #[serde(flatten)]
    pub live: LiveMemory,
    /// The GPU memory among that on the device that was asked, if it is known which.
    pub device_bytes: Option<u64>,
    /// Memory that it held, by kind.
    pub kinds: LiveByKind,
    /// The same by owner: GPU memory, or the host's if that was asked for.
    pub owners: Vec<OwnerReport>,
    /// The call sites that held most of the GPU, or of the host if its memory was asked for.
    pub sites: Vec<IncidentSite>,
    /// Memory held by the sites that are not listed; `None` if all are.
    #[serde(rename = "omitted_sites", skip_serializing_if = "Option::is_none")]
    pub omitted: Option<Omitted>,
    /// Memory that PyTorch's allocator had handed out on that device, and its message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pytorch: Option<PytorchHoldings>,
    /// The other processes on that GPU, most first.
    pub others: Vec<OtherReport>,
}

/// A GPU at the moment of an incident.
#[derive(Clone, Debug, Serialize)]
pub struct GpuState {
    /// Memory of the GPU according to NVML.
    #[serde(flatten)]
    pub memory: GpuMemory,
    /// Bytes that nobody uses; none if NVML does not say.
    pub free_bytes: Option<u64>,
}

/// A call site and what it held.
#[derive(Clone, Debug, Serialize)]
pub struct IncidentSite {
    /// Its number within the process; of tensors, within PyTorch's on that device.
    pub id: u32,
    /// Label of the call site.
    pub label: String,
    /// The function that was called.
    pub api: Cow<'static, str>,
    /// Memory that was live.
    #[serde(flatten)]
    pub live: Total,
    /// The call stack, innermost first; empty if it is not known.
    pub stack: Vec<Frame>,
}

/// Memory that PyTorch's allocator had handed out on the device, and its message when it gave up.
#[derive(Clone, Debug, Serialize)]
pub struct PytorchHoldings {
    /// Device index as the process numbers it.
    pub device: u16,
    /// Bytes that were asked of it and that it gave up on; none if it did not.
    pub gave_up_on_bytes: Option<u64>,
    /// Bytes that it had handed out, as it says.
    pub allocated_bytes: u64,
    /// Bytes that it had from CUDA for that, as it says.
    pub reserved_bytes: u64,
    /// Memory from CUDA that it was seen to hand out of.
    pub segments: u64,
    /// Bytes of the segments.
    pub segment_bytes: u64,
    /// Bytes of the largest block in it that is free; none if tensors are not traced.
    pub largest_free_bytes: Option<u64>,
    /// Bytes of the largest request that it has room for.
    pub largest_fit_bytes: Option<u64>,
    /// Bytes of it that `torch.cuda.empty_cache()` would give back.
    pub empty_cache_bytes: Option<u64>,
    /// Bytes of it that are held by less than 5 % of them.
    pub pinned_by_small_bytes: Option<u64>,
    /// The call sites of the tensors that took most.
    pub sites: Vec<IncidentSite>,
    /// Memory of the sites that are not listed; `None` if all are.
    #[serde(rename = "omitted_sites", skip_serializing_if = "Option::is_none")]
    pub omitted: Option<Omitted>,
}

/// Another process on the GPU.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OtherReport {
    /// Process id, as the host has it.
    pub pid: u32,
    /// User id, if known.
    pub uid: Option<u32>,
    /// Name of the user, if known.
    pub user: Option<String>,
    /// Name of the process; `None` if not known.
    pub comm: Option<String>,
    /// Its command line, if known.
    pub command: Option<String>,
    /// The id of its container, if it is in one.
    pub container: Option<String>,
    /// Bytes that NVML says it used, if NVML is there.
    pub used_bytes: Option<u64>,
    /// Bytes of it that were traced and live, if it is traced.
    pub live_bytes: Option<u64>,
}

impl OtherReport {
    /// Bytes that it has of the GPU.
    pub fn bytes(&self) -> u64 {
        self.used_bytes.or(self.live_bytes).unwrap_or(0)
    }
}

impl IncidentReport {
    /// What was refused, to whom, where, and what became of it.
    pub fn headline(&self) -> String {
        let at = self
            .time
            .map(|time| time.format(" at %H:%M:%S").to_string());
        // PyTorch's request, if it gave up on one; else CUDA's.
        let gave_up = self.pytorch.as_ref().and_then(|one| one.gave_up_on_bytes);
        let asked = match gave_up.or(self.asked_bytes) {
            Some(bytes) => size(bytes),
            None => "memory of unknown size".into(),
        };
        let names = (&self.comm, &self.command);
        let who = Who::new(self.pid, names, (&self.user, self.uid), false);
        let after = match self.outcome_seconds.unwrap_or(0.0) {
            ..0.001 => "at once".into(),
            after => format!("after {}", short_age((after * 1e9) as u64)),
        };
        let given_up = if gave_up.is_some() {
            "PyTorch gave up; "
        } else {
            ""
        };
        let outcome = match self.outcome {
            "retried" => format!("retried with success {after}"),
            "failed" => "PyTorch gave up".into(),
            "continued" => format!("{given_up}the program went on"),
            "ended" => format!("{given_up}the program ended {after}"),
            _ => "not retried with success so far".into(),
        };
        format!(
            "out of memory #{}{}: {} was refused {asked} on {} at {}: {outcome}",
            self.id,
            at.unwrap_or_default(),
            who.with_pid(),
            self.place(),
            printable(&self.label),
        )
    }

    /// `GPU 0`, or the host.
    pub fn place(&self) -> String {
        let index = self.physical_index.or(self.device.map(u32::from));
        match (self.host_memory, index) {
            (true, _) => "the host".into(),
            (false, Some(index)) => format!("GPU {index}"),
            (false, None) => "a GPU".into(),
        }
    }

    /// Removes command lines and addresses.
    pub(crate) fn hide_secrets(&mut self) {
        self.command = None;
        for other in &mut self.others {
            other.command = None;
        }
        hide_in_site(&mut self.label, &mut self.stack);
        let of_pytorch = self.pytorch.iter_mut().flat_map(|held| &mut held.sites);
        for site in self.sites.iter_mut().chain(of_pytorch) {
            hide_in_site(&mut site.label, &mut site.stack);
        }
    }
}
