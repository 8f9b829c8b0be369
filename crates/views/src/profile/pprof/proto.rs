//! The messages of a profile, field by field as in
//! <https://github.com/google/pprof/blob/main/proto/profile.proto>.

use prost::Message;

/// The message `perftools.profiles.Profile`, the root of a profile.
#[derive(Clone, PartialEq, Message)]
pub struct Proto {
    /// Types of the values of samples.
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    /// Values by call stack.
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<SampleProto>,
    /// Binaries, with the mapping of their code.
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<PprofMapping>,
    /// Code locations of all samples.
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<LocationProto>,
    /// Functions of all locations.
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<PprofFunction>,
    /// String table, to which other fields refer by index; the first string is empty.
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    /// Time of the profile, nanoseconds since 1970.
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    /// Type of the event that samples are taken of.
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    /// Number of such events for each sample.
    #[prost(int64, tag = "12")]
    pub period: i64,
    /// Type of the value that is shown by default, as string index.
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
}

/// Type of a value.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ValueType {
    /// Name of the type, as string index.
    #[prost(int64, tag = "1")]
    pub kind: i64,
    /// Unit of the values, as string index.
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

/// The message `perftools.profiles.Sample`, with the values of one call stack.
#[derive(Clone, PartialEq, Message)]
pub struct SampleProto {
    /// Ids of locations, innermost first.
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    /// Values in the order of `sample_type`.
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    /// Labels with the process.
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<PprofLabel>,
}

/// An additional property of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct PprofLabel {
    /// Key of the label, as string index.
    #[prost(int64, tag = "1")]
    pub key: i64,
    /// Value of a text label, as string index.
    #[prost(int64, tag = "2")]
    pub str: i64,
    /// Value of a numeric label.
    #[prost(int64, tag = "3")]
    pub num: i64,
}

/// A binary mapped into the process.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct PprofMapping {
    /// Id of the mapping, from 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Path of the binary, as string index.
    #[prost(int64, tag = "5")]
    pub filename: i64,
    /// Whether functions have been symbolised.
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    /// Whether source files have been looked up.
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
    /// Whether line numbers have been looked up.
    #[prost(bool, tag = "9")]
    pub has_line_numbers: bool,
    /// Whether inlined functions have been looked up.
    #[prost(bool, tag = "10")]
    pub has_inline_frames: bool,
}

/// The message `perftools.profiles.Location`, a code address with its lines.
#[derive(Clone, PartialEq, Message)]
pub struct LocationProto {
    /// Id of the location, from 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Id of the mapping; 0 if there is none.
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    /// Address of the code; 0 if unknown.
    #[prost(uint64, tag = "3")]
    pub address: u64,
    /// Inlined functions, then the one that contains them.
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<PprofLine>,
}

/// A line of a function.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct PprofLine {
    /// Id of the function.
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    /// Line number; 0 if unknown.
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// A function with its source file.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct PprofFunction {
    /// Id of the function, from 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Demangled name, as string index.
    #[prost(int64, tag = "2")]
    pub name: i64,
    /// Mangled name, as string index.
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    /// Path of the source file, as string index.
    #[prost(int64, tag = "4")]
    pub filename: i64,
}
