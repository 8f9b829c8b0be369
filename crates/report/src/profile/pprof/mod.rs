//! Profiles for `pprof`: protocol buffers of `profile.proto`, compressed.
//!
//! prost encodes the messages of [`proto`].

pub mod proto;
mod served;

use std::collections::HashMap;
use std::hash::Hash;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use super::{Profile, ProfileFrame, Weight};
use gpuprobe_model::text::printable;

pub use served::{labelled, of_launches};

use proto::{
    LocationProto, PprofFunction, PprofLabel, PprofLine, PprofMapping, Proto, SampleProto,
    ValueType,
};

/// Assigns numbers from 1 to distinct keys.
#[derive(Debug)]
struct IdTable<K> {
    ids: HashMap<K, u64>,
}

impl<K: Hash + Eq> IdTable<K> {
    fn new() -> Self {
        let ids = HashMap::new();
        Self { ids }
    }

    /// The number of `key`, and whether it is new.
    fn id(&mut self, key: K) -> (u64, bool) {
        let next = self.ids.len() as u64 + 1;
        let id = *self.ids.entry(key).or_insert(next);
        (id, id == next)
    }
}

struct Builder {
    proto: Proto,
    strings: HashMap<String, i64>,
    mappings: IdTable<String>,
    functions: IdTable<(i64, i64)>,
    locations: IdTable<Vec<ProfileFrame>>,
}

/// The protocol buffer message of `profile`.
pub fn message(profile: &Profile, weight: Weight) -> Proto {
    let mut builder = Builder::of_types(&[
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
    for sample in &profile.samples {
        builder.sample(sample);
    }
    builder.proto
}

/// Writes `profile`, compressed.
pub fn write(profile: &Profile, weight: Weight, out: &mut dyn Write) -> io::Result<()> {
    pack(&message(profile, weight), out)
}

/// Writes a message, compressed.
pub fn pack(message: &Proto, out: &mut dyn Write) -> io::Result<()> {
    let mut packed = GzEncoder::new(out, Compression::default());
    packed.write_all(&message.encode_to_vec())?;
    packed.finish().map(drop)
}

impl Builder {
    /// An empty message with values of these types and units.
    fn of_types(types: &[(&str, &str)]) -> Self {
        let mut builder = Self {
            proto: Proto::default(),
            strings: HashMap::new(),
            mappings: IdTable::new(),
            functions: IdTable::new(),
            locations: IdTable::new(),
        };
        builder.string("");
        for (kind, unit) in types {
            let (kind, unit) = (builder.string(kind), builder.string(unit));
            builder.proto.sample_type.push(ValueType { kind, unit });
        }
        builder
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(id) = self.strings.get(text) {
            return *id;
        }
        let id = i64::try_from(self.proto.string_table.len()).unwrap_or(0);
        self.proto.string_table.push(text.to_owned());
        self.strings.insert(text.to_owned(), id);
        id
    }

    fn sample(&mut self, sample: &super::StackSample) {
        let mut location_id = Vec::new();
        let mut frames = sample.frames.as_slice();
        while !frames.is_empty() {
            // Up to the function into which the others are inlined.
            let inlined = frames.iter().take_while(|frame| frame.inlined).count();
            let (here, rest) = frames.split_at(frames.len().min(inlined + 1));
            location_id.push(self.location(here));
            frames = rest;
        }
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let value = [sample.live, sample.total]
            .iter()
            .flat_map(|amount| [number(amount.bytes), number(amount.allocations)])
            .collect();
        let (process, pid) = (self.string("process"), self.string("pid"));
        let label = vec![
            PprofLabel {
                key: process,
                str: self.string(&printable(&sample.process)),
                num: 0,
            },
            PprofLabel {
                key: pid,
                str: 0,
                num: i64::from(sample.pid),
            },
        ];
        self.proto.sample.push(SampleProto {
            location_id,
            value,
            label,
        });
    }

    fn location(&mut self, frames: &[ProfileFrame]) -> u64 {
        let (id, is_new) = self.locations.id(frames.to_vec());
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
        let (id, is_new) = self.mappings.id(module);
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

    fn line(&mut self, frame: &ProfileFrame) -> PprofLine {
        let name = self.string(&printable(&frame.function));
        let filename = self.string(&printable(frame.file.as_deref().unwrap_or("")));
        let (id, is_new) = self.functions.id((name, filename));
        if is_new {
            self.proto.function.push(PprofFunction {
                id,
                name,
                system_name: name,
                filename,
            });
        }
        PprofLine {
            function_id: id,
            line: i64::from(frame.line.unwrap_or(0)),
        }
    }
}
