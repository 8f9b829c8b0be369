//! Profiles that are served: with more labels, and without addresses.

use std::borrow::Cow;

use super::proto::{LocationProto, PprofLabel, PprofLine, Proto, SampleProto, ValueType};
use super::{Builder, PprofFunction, message};
use crate::cudatrace::{Cudatrace, KernelReport};
use crate::profile::{Profile, ProfileFrame, Weight};
use crate::public::without_addresses;
use gpuprobe_model::text::printable;

/// Further labels of the samples of a process, by its id.
pub(super) type LabelsOf<'a> = &'a dyn Fn(u32) -> Vec<(&'static str, String)>;

/// The message of `profile`, without addresses, and with the labels of each sample's process.
pub fn labelled(profile: &Profile, weight: Weight, labels: LabelsOf<'_>) -> Proto {
    let mut profile = profile.clone();
    for sample in &mut profile.samples {
        sample.frames.iter_mut().for_each(hide_address);
    }
    let mut builder = Builder::from(message(&profile, weight));
    builder.period("space", "bytes");
    for (index, sample) in profile.samples.iter().enumerate() {
        let more = builder.labels(labels(sample.pid));
        if let Some(sample) = builder.proto.sample.get_mut(index) {
            sample.label.extend(more);
        }
    }
    builder.proto
}

/// The message of the kernels of live processes, by launches: one frame each.
pub fn of_launches(trace: Option<&Cudatrace>, time_ns: Option<i64>, labels: LabelsOf<'_>) -> Proto {
    let mut builder = Builder::of_types(&[("launches", "count"), ("captured", "count")]);
    builder.proto.default_sample_type = builder.string("launches");
    builder.period("launches", "count");
    builder.proto.time_nanos = time_ns.unwrap_or(0);
    let kernels = trace.iter().flat_map(|trace| &trace.kernels);
    for kernel in kernels.filter(|kernel| !kernel.exited) {
        builder.kernel(kernel, labels(kernel.pid));
    }
    builder.proto
}

fn hide_address(frame: &mut ProfileFrame) {
    frame.address = 0;
    if frame.function.contains("0x") {
        frame.function = without_addresses(&frame.function).into();
    }
}

impl From<Proto> for Builder {
    /// A builder that adds to a message, with its strings.
    fn from(proto: Proto) -> Self {
        let mut builder = Self::of_types(&[]);
        let strings = proto.string_table.iter().cloned().zip(0..);
        builder.strings = strings.collect();
        builder.proto = proto;
        builder
    }
}

impl Builder {
    /// Every event is counted. Pyroscope cannot do without a period.
    fn period(&mut self, kind: &str, unit: &str) {
        let (kind, unit) = (self.string(kind), self.string(unit));
        self.proto.period_type = Some(ValueType { kind, unit });
        self.proto.period = 1;
    }

    fn labels(&mut self, labels: Vec<(&'static str, String)>) -> Vec<PprofLabel> {
        let label = |(key, text): (&str, String)| PprofLabel {
            key: self.string(key),
            str: self.string(&printable(&text)),
            num: 0,
        };
        labels.into_iter().map(label).collect()
    }

    fn kernel(&mut self, kernel: &KernelReport, labels: Vec<(&'static str, String)>) {
        let name = match kernel.mangled {
            Some(_) => Cow::Owned(printable(&kernel.name)),
            None => Cow::Borrowed("unknown"),
        };
        let name = self.string(&name);
        let (function_id, is_new) = self.functions.id((name, 0));
        if is_new {
            self.proto.function.push(PprofFunction {
                id: function_id,
                name,
                system_name: name,
                filename: 0,
            });
            // A kernel is a function and a location.
            self.proto.location.push(LocationProto {
                id: function_id,
                mapping_id: 0,
                address: 0,
                line: vec![PprofLine {
                    function_id,
                    line: 0,
                }],
            });
        }
        let pid = PprofLabel {
            key: self.string("pid"),
            str: 0,
            num: i64::from(kernel.pid),
        };
        let label = std::iter::once(pid).chain(self.labels(labels)).collect();
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.proto.sample.push(SampleProto {
            location_id: vec![function_id],
            value: vec![number(kernel.launches), number(kernel.captured_launches)],
            label,
        });
    }
}
