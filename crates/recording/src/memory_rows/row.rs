//! Rows of memory events, and where these came from.

use rusqlite::Row;
use serde::Serialize;

use crate::row::{integer, text};

/// The table of memory events.
pub const MEMORY: &str = "CUDA_GPU_MEMORY_USAGE_EVENTS";

/// Its columns, as [`MemoryRow::of`] expects them.
pub(super) const COLUMNS: [&str; 9] = [
    "start",
    "globalPid",
    "deviceId",
    "address",
    "bytes",
    "memKind",
    "memoryOperationType",
    "name",
    "correlationId",
];

/// Something was allocated or freed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryRow {
    /// When, nanoseconds of the session.
    pub start_ns: i64,
    /// Global id of the process.
    pub process: i64,
    /// Device.
    pub device: i64,
    /// Address.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// Number of the kind of memory.
    pub kind: u8,
    /// It is an allocation.
    pub allocates: bool,
    /// The variable, for static memory.
    pub variable: Option<Box<str>>,
    /// The call that it belongs to.
    pub correlation: Option<i64>,
}

impl MemoryRow {
    /// The event in a row of [`COLUMNS`]; none if it makes no sense.
    pub(super) fn of(row: &Row<'_>) -> Option<Self> {
        Some(Self {
            start_ns: integer(row, 0)?,
            process: integer(row, 1)?,
            device: integer(row, 2).unwrap_or(0),
            address: integer(row, 3)?.cast_unsigned(),
            bytes: u64::try_from(integer(row, 4)?).ok()?,
            kind: integer(row, 5)
                .and_then(|kind| u8::try_from(kind).ok())
                .unwrap_or(7),
            allocates: match integer(row, 6)? {
                0 => true,
                1 => false,
                _ => return None,
            },
            variable: text(row, 7)
                .filter(|name| !name.is_empty())
                .map(String::into_boxed_str),
            correlation: integer(row, 8).filter(|&id| id != 0),
        })
    }
}

/// What is known of the call behind a memory event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Trace {
    /// A call with a call stack.
    Valid,
    /// No call stack was found.
    #[default]
    Invalid,
    /// A call of the driver that the program made itself.
    Driver,
}

impl Trace {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Valid, Self::Invalid, Self::Driver];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Invalid => "invalid",
            Self::Driver => "driver",
        }
    }
}

/// The call that a memory event came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// What is known of it.
    pub trace: Trace,
    /// `callchainId`, if it has a call stack.
    pub chain: Option<i64>,
    /// `nameId` of the function, if there was a call.
    pub function: Option<i64>,
    /// Global id of the thread, if there was a call.
    pub thread: Option<i64>,
}
