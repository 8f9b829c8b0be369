//! Rows of memory events and their origin.

use rusqlite::Row;
use serde::Serialize;

use crate::numbers::Numbers;
use crate::row::text;

/// Table of memory events.
pub const MEMORY: &str = "CUDA_GPU_MEMORY_USAGE_EVENTS";

/// Columns with numbers, for [`MemoryRow::of`].
pub(super) const NUMBERS: &str =
    "start, globalPid, deviceId, address, bytes, memKind, memoryOperationType, correlationId";
/// Column with the name of a variable, which follows them.
pub(super) const NAME: &str = "name";

/// An allocation or free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryRow {
    /// Session time of the event, nanoseconds.
    pub start_ns: i64,
    /// Global id of the process.
    pub process: i64,
    /// Index of the device.
    pub device: i64,
    /// Address of the allocation.
    pub address: u64,
    /// Size of the allocation, bytes.
    pub bytes: u64,
    /// Number of the memory kind.
    pub kind: u8,
    /// It is an allocation.
    pub allocates: bool,
    /// Name of the variable, for static memory.
    pub variable: Option<Box<str>>,
    /// Correlation id of the API call.
    pub correlation: Option<i64>,
}

impl MemoryRow {
    /// Reads a row with [`NUMBERS`] and [`NAME`]; `None` if it is invalid.
    pub(super) fn of(row: &Row<'_>) -> Option<Self> {
        let numbers = Numbers::of(row)?;
        Some(Self {
            start_ns: numbers.get(0)?,
            process: numbers.get(1)?,
            device: numbers.get(2).unwrap_or(0),
            address: numbers.get(3)?.cast_unsigned(),
            bytes: u64::try_from(numbers.get(4)?).ok()?,
            kind: numbers
                .get(5)
                .and_then(|kind| u8::try_from(kind).ok())
                .unwrap_or(7),
            allocates: match numbers.get(6)? {
                0 => true,
                1 => false,
                _ => return None,
            },
            variable: text(row, 1)
                .filter(|name| !name.is_empty())
                .map(String::into_boxed_str),
            correlation: numbers.get(7).filter(|&id| id != 0),
        })
    }
}

/// Call stack information of a memory event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Trace {
    /// A call with a call stack.
    Valid,
    /// A call without a call stack.
    #[default]
    Invalid,
    /// A direct driver call without a call stack.
    Driver,
}

impl Trace {
    /// All values, in the order of reports.
    pub const ALL: [Self; 3] = [Self::Valid, Self::Invalid, Self::Driver];

    /// Name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Invalid => "invalid",
            Self::Driver => "driver",
        }
    }
}

/// The API call of a memory event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginatingCall {
    /// Whether the call has a call stack.
    pub trace: Trace,
    /// `callchainId` of the call stack.
    pub chain: Option<i64>,
    /// `nameId` of the function.
    pub function: Option<i64>,
    /// Global id of the thread.
    pub thread: Option<i64>,
}
