//! Profiles for `pprof`: protocol buffers of `profile.proto`, compressed.
//!
//! prost encodes the messages of [`proto`].

pub mod proto;

use std::io::Write;

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use indexmap::IndexSet;
use prost::Message;

use gpuprobe_model::stack::Frame;
use gpuprobe_model::text::printable;
use gpuprobe_report::cudatrace::Cudatrace;
use gpuprobe_report::profile::{Profile, named_frame};

use proto::{
    LocationProto, PprofFunction, PprofLabel, PprofLine, PprofMapping, Proto, SampleProto,
    ValueType,
};

/// Writes `profile`, compressed.
///
/// # Errors
/// Returns the error of `out`.
pub fn write(profile: &Profile, out: &mut dyn Write) -> Result<()> {
    let default = profile.weight.of("inuse_space", "alloc_space");
    let types = [
        ("inuse_space", "bytes"),
        ("inuse_objects", "count"),
        ("alloc_space", "bytes"),
        ("alloc_objects", "count"),
    ];
    let mut builder = Builder::new(&types, default, ("space", "bytes"), profile.time_ns);
    for sample in &profile.samples {
        let process = ("process", sample.process.to_string());
        let labels = builder.labels(sample.pid, &[&[process], &sample.labels[..]].concat());
        let (live, total) = (sample.live, sample.total);
        let values = [live.bytes, live.allocations, total.bytes, total.allocations];
        builder.sample(&sample.frames, &values, labels);
    }
    builder.write(out)
}

/// Writes the kernels of live processes by launches, one frame each, compressed, with further labels of each process.
///
/// # Errors
/// Returns the error of `out`.
pub fn write_launches(
    trace: Option<&Cudatrace>,
    time_ns: Option<i64>,
    labels: impl Fn(u32) -> Vec<(&'static str, String)>,
    out: &mut dyn Write,
) -> Result<()> {
    let period = ("launches", "count");
    let types = [period, ("captured", "count")];
    let mut builder = Builder::new(&types, "launches", period, time_ns);
    let kernels = trace.iter().flat_map(|trace| &trace.kernels);
    for kernel in kernels.filter(|kernel| !kernel.exited) {
        let name = match kernel.mangled {
            Some(_) => &kernel.name,
            None => "unknown",
        };
        let values = [kernel.launches, kernel.captured_launches];
        let labels = builder.labels(kernel.pid, &labels(kernel.pid));
        builder.sample(&[named_frame(name)], &values, labels);
    }
    builder.write(out)
}

/// Things of which each is once in a message, by their numbers.
type Numbered<T> = IndexSet<T>;

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
    /// An empty message with values of these types and units. Every event is counted, with a period of 1: Pyroscope
    /// cannot do without.
    fn new(
        types: &[(&str, &str)],
        default: &str,
        period: (&str, &str),
        time_ns: Option<i64>,
    ) -> Self {
        let mut builder = Self::default();
        builder.string("");
        builder.proto.sample_type = types.iter().map(|one| builder.value_type(*one)).collect();
        builder.proto.default_sample_type = builder.string(default);
        builder.proto.period_type = Some(builder.value_type(period));
        builder.proto.period = 1;
        builder.proto.time_nanos = time_ns.unwrap_or(0);
        builder
    }

    fn write(mut self, out: &mut dyn Write) -> Result<()> {
        self.proto.string_table = self.strings.into_iter().collect();
        let mut packed = GzEncoder::new(out, Compression::default());
        packed.write_all(&self.proto.encode_to_vec())?;
        packed.finish()?;
        Ok(())
    }

    fn value_type(&mut self, (kind, unit): (&str, &str)) -> ValueType {
        let (kind, unit) = (self.string(kind), self.string(unit));
        ValueType { kind, unit }
    }

    fn string(&mut self, text: &str) -> i64 {
        self.strings.insert_full(text.to_owned()).0 as i64
    }

    fn labels(&mut self, pid: u32, more: &[(&str, String)]) -> Vec<PprofLabel> {
        let pid = (self.string("pid"), 0, i64::from(pid));
        let text =
            |(key, text): &(&str, String)| (self.string(key), self.string(&printable(text)), 0);
        let all = std::iter::once(pid).chain(more.iter().map(text));
        all.map(|(key, str, num)| PprofLabel { key, str, num })
            .collect()
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
