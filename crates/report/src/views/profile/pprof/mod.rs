//! Profiles for `pprof`: protocol buffers of `profile.proto`, compressed.
//!
//! prost encodes the messages of [`proto`].

pub mod proto;

use std::hash::RandomState;
use std::io::Write;

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use indexmap::IndexSet;
use prost::Message;

use super::{Profile, StackSample, Weight, named_frame};
use crate::cudatrace::Cudatrace;
use crate::public::without_addresses;
use gpuprobe_model::stack::Frame;
use gpuprobe_model::text::printable;

use proto::{
    LocationProto, PprofFunction, PprofLabel, PprofLine, PprofMapping, Proto, SampleProto,
    ValueType,
};

/// Further labels of the samples of a process, by its id.
type LabelsOf<'a> = &'a dyn Fn(u32) -> Vec<(&'static str, String)>;

/// Writes `profile`, compressed.
///
/// # Errors
/// Returns the error of `out`.
pub fn write(profile: &Profile, weight: Weight, out: &mut dyn Write) -> Result<()> {
    let builder = Builder::of_memory(profile, weight);
    let made = profile.samples.iter().fold(builder, |mut builder, sample| {
        builder.memory(sample, Vec::new());
        builder
    });
    pack(&made.finish(), out)
}

/// Writes a message, compressed.
///
/// # Errors
/// Returns the error of `out`.
pub fn pack(message: &Proto, out: &mut dyn Write) -> Result<()> {
    let mut packed = GzEncoder::new(out, Compression::default());
    packed.write_all(&message.encode_to_vec())?;
    packed.finish()?;
    Ok(())
}

/// The message of `profile`, without addresses, and with the labels of each sample's process.
pub fn labelled(mut profile: Profile, weight: Weight, labels: LabelsOf<'_>) -> Proto {
    let mut builder = Builder::of_memory(&profile, weight);
    builder.period("space", "bytes");
    for sample in &mut profile.samples {
        for frame in &mut sample.frames {
            frame.address = 0;
            frame.function = without_addresses(&frame.function);
        }
        builder.memory(sample, labels(sample.pid));
    }
    builder.finish()
}

/// The message of the kernels of live processes, by launches: one frame each.
pub fn of_launches(trace: Option<&Cudatrace>, time_ns: Option<i64>, labels: LabelsOf<'_>) -> Proto {
    let mut builder = Builder::new(&[("launches", "count"), ("captured", "count")]);
    builder.proto.default_sample_type = builder.string("launches");
    builder.period("launches", "count");
    builder.proto.time_nanos = time_ns.unwrap_or(0);
    let kernels = trace.iter().flat_map(|trace| &trace.kernels);
    for kernel in kernels.filter(|kernel| !kernel.exited) {
        let name = match kernel.mangled {
            Some(_) => &kernel.name,
            None => "unknown",
        };
        let values = [kernel.launches, kernel.captured_launches];
        let label = builder.labels(kernel.pid, labels(kernel.pid));
        builder.sample(&[named_frame(name)], &values, label);
    }
    builder.finish()
}

/// Things of which each is once in a message, by their numbers.
type Numbered<T> = IndexSet<T, RandomState>;

/// A message, and what it has already. Ids of all but strings are from 1.
#[derive(Default)]
struct Builder {
    proto: Proto,
    strings: Numbered<String>,
    mappings: Numbered<String>,
    functions: Numbered<(i64, i64)>,
    locations: Numbered<Vec<Frame>>,
}

impl Builder {
    /// An empty message with values of these types and units.
    fn new(types: &[(&str, &str)]) -> Self {
        let mut builder = Self::default();
        builder.string("");
        for (kind, unit) in types {
            let (kind, unit) = (builder.string(kind), builder.string(unit));
            builder.proto.sample_type.push(ValueType { kind, unit });
        }
        builder
    }

    /// A message for the samples of `profile`.
    fn of_memory(profile: &Profile, weight: Weight) -> Self {
        let mut builder = Self::new(&[
            ("inuse_space", "bytes"),
            ("inuse_objects", "count"),
            ("alloc_space", "bytes"),
            ("alloc_objects", "count"),
        ]);
        let default = weight.of("inuse_space", "alloc_space");
        builder.proto.default_sample_type = builder.string(default);
        builder.proto.time_nanos = profile.time_ns.unwrap_or(0);
        let in_use = if profile.at_peak {
            Weight::Peak
        } else {
            Weight::End
        };
        let comment = format!(
            "memory by call stack; in use is what was {}",
            in_use.describe()
        );
        let comment = builder.string(&comment);
        builder.proto.comment.push(comment);
        builder
    }

    fn finish(mut self) -> Proto {
        self.proto.string_table = self.strings.into_iter().collect();
        self.proto
    }

    /// Every event is counted. Pyroscope cannot do without a period.
    fn period(&mut self, kind: &str, unit: &str) {
        let (kind, unit) = (self.string(kind), self.string(unit));
        self.proto.period_type = Some(ValueType { kind, unit });
        self.proto.period = 1;
    }

    fn string(&mut self, text: &str) -> i64 {
        let known = self.strings.get_index_of(text);
        let index = known.unwrap_or_else(|| self.strings.insert_full(text.to_owned()).0);
        i64::try_from(index).unwrap_or(0)
    }

    fn labels(&mut self, pid: u32, more: Vec<(&'static str, String)>) -> Vec<PprofLabel> {
        let pid = PprofLabel {
            key: self.string("pid"),
            str: 0,
            num: i64::from(pid),
        };
        let more = more.into_iter().map(|(key, text)| self.label(key, &text));
        std::iter::once(pid).chain(more).collect()
    }

    fn label(&mut self, key: &str, text: &str) -> PprofLabel {
        PprofLabel {
            key: self.string(key),
            str: self.string(&printable(text)),
            num: 0,
        }
    }

    fn memory(&mut self, sample: &StackSample, labels: Vec<(&'static str, String)>) {
        let mut label = vec![self.label("process", &sample.process)];
        label.extend(self.labels(sample.pid, labels));
        let (live, total) = (sample.live, sample.total);
        let values = [live.bytes, live.allocations, total.bytes, total.allocations];
        self.sample(&sample.frames, &values, label);
    }

    fn sample(&mut self, frames: &[Frame], values: &[u64], label: Vec<PprofLabel>) {
        // Each location ends with the function into which the others are inlined.
        let locations = frames.split_inclusive(|frame| !frame.inlined);
        let location_id = locations.map(|frames| self.location(frames)).collect();
        let number = |number: &u64| i64::try_from(*number).unwrap_or(i64::MAX);
        self.proto.sample.push(SampleProto {
            location_id,
            value: values.iter().map(number).collect(),
            label,
        });
    }

    fn location(&mut self, frames: &[Frame]) -> u64 {
        let (index, is_new) = self.locations.insert_full(frames.to_vec());
        let id = index as u64 + 1;
        if is_new {
            let outermost = frames.last();
            let location = LocationProto {
                id,
                mapping_id: outermost.map_or(0, |frame| self.mapping(&frame.module)),
                address: outermost.map_or(0, |frame| frame.address),
                line: frames.iter().map(|frame| self.line(frame)).collect(),
            };
            self.proto.location.push(location);
        }
        id
    }

    fn mapping(&mut self, module: &str) -> u64 {
        // A module in brackets is not a file.
        if module.is_empty() || module.starts_with('[') {
            return 0;
        }
        let module = printable(module);
        let filename = self.string(&module);
        let (index, is_new) = self.mappings.insert_full(module);
        let id = index as u64 + 1;
        if is_new {
            self.proto.mapping.push(PprofMapping {
                id,
                filename,
                has_functions: true,
                has_filenames: true,
                has_line_numbers: true,
                has_inline_frames: true,
            });
        }
        id
    }

    fn line(&mut self, frame: &Frame) -> PprofLine {
        let name = self.string(&printable(&frame.function));
        let filename = self.string(&printable(frame.file.as_deref().unwrap_or("")));
        let (index, is_new) = self.functions.insert_full((name, filename));
        let function_id = index as u64 + 1;
        if is_new {
            self.proto.function.push(PprofFunction {
                id: function_id,
                name,
                system_name: name,
                filename,
            });
        }
        PprofLine {
            function_id,
            line: i64::from(frame.line.unwrap_or(0)),
        }
    }
}
