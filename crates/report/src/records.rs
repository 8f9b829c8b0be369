//! Single activity records, approximately in time order.

pub use gpuprobe_wire as wire;

use gpuprobe_engine::GpuActivity;
use gpuprobe_model::activity::{Activity, ActivityBatch, ActivityRecord};

/// A record to be written.
#[derive(Clone, Copy, Debug)]
pub struct PerRecordLine<'a> {
    /// The record from CUPTI.
    pub activity: &'a Activity,
    /// Name in the record; demangled if it is of a kernel.
    pub name: Option<&'a str>,
    /// When tracing began, `CLOCK_MONOTONIC` nanoseconds; times are relative to it.
    pub began_ns: u64,
}

/// A record with the number of its process.
pub type Numbered = (u32, Activity);

/// The records of `batches` by start time. A record without times stays behind the one before it.
pub fn in_order(batches: Vec<ActivityBatch>) -> Vec<Numbered> {
    let mut timed = Vec::with_capacity(batches.iter().map(|b| b.activities.len()).sum());
    for batch in batches {
        let mut latest = 0;
        for activity in batch.activities {
            latest = activity.start_ns().unwrap_or(latest);
            timed.push((latest, (batch.process, activity)));
        }
    }
    timed.sort_by_key(|(start_ns, _)| *start_ns);
    timed.into_iter().map(|(_, numbered)| numbered).collect()
}

/// The output line of a record.
pub fn line<'a>(
    (number, activity): &'a Numbered,
    activities: &'a GpuActivity,
    began_ns: u64,
) -> PerRecordLine<'a> {
    let process = activities.get(*number);
    let mangled = activity.name.as_ref();
    let name = match (&activity.record, process, mangled) {
        (ActivityRecord::Kernel(_), Some(process), Some(mangled)) => {
            process.kernels.name_of(mangled)
        }
        _ => None,
    };
    PerRecordLine {
        activity,
        name: name.or(mangled).map(AsRef::as_ref),
        began_ns,
    }
}
