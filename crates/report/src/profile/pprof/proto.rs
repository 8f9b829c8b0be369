//! The messages of a profile, field by field as in
//! <https://github.com/google/pprof/blob/main/proto/profile.proto>.

use prost::Message;

/// `perftools.profiles.Profile`.
#[derive(Clone, PartialEq, Message)]
pub struct Proto {
    /// What the values of samples are.
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    /// The samples.
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<SampleProto>,
    /// Files that code is in.
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    /// Instructions.
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<LocationProto>,
    /// Functions.
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    /// All texts; the first is empty.
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    /// When, nanoseconds since 1970.
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    /// Texts about the profile.
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    /// The value that is shown at first.
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
}

/// What a value is.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ValueType {
    /// Its name.
    #[prost(int64, tag = "1")]
    pub kind: i64,
    /// Its unit.
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

/// `perftools.profiles.Sample`.
#[derive(Clone, PartialEq, Message)]
pub struct SampleProto {
    /// Innermost first.
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    /// In the order of the types.
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    /// The process.
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<Label>,
}

/// What a sample is besides.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Label {
    /// Of what.
    #[prost(int64, tag = "1")]
    pub key: i64,
    /// A text.
    #[prost(int64, tag = "2")]
    pub str: i64,
    /// A number.
    #[prost(int64, tag = "3")]
    pub num: i64,
}

/// A file that code is in.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Mapping {
    /// Its number, from 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its path.
    #[prost(int64, tag = "5")]
    pub filename: i64,
    /// Nothing is left to be looked up in it.
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    /// Nor source files.
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
    /// Nor lines.
    #[prost(bool, tag = "9")]
    pub has_line_numbers: bool,
    /// Nor inlined functions.
    #[prost(bool, tag = "10")]
    pub has_inline_frames: bool,
}

/// `perftools.profiles.Location`.
#[derive(Clone, PartialEq, Message)]
pub struct LocationProto {
    /// Its number, from 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The file; 0 if there is none.
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    /// The address; 0 if it is not known.
    #[prost(uint64, tag = "3")]
    pub address: u64,
    /// Inlined functions, then the one that they are in.
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
}

/// A line of a function.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Line {
    /// The function.
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    /// The line; 0 if it is not known.
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// A function.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Function {
    /// Its number, from 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its name.
    #[prost(int64, tag = "2")]
    pub name: i64,
    /// Its name as the system has it.
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    /// The source file.
    #[prost(int64, tag = "4")]
    pub filename: i64,
}
