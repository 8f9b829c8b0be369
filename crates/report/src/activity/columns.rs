//! Single records as rows of a table, for programs.

use std::fmt::{self, Display};

use gpuprobe_model::text::hex;
use serde::ser::{Serialize, SerializeMap, Serializer};

macro_rules! columns {
    ($($column:ident $name:literal,)+) => {
        /// A column of the table of records.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum RecordColumn {
            $($column),+
        }

        /// Names of the columns, which are also the keys of a record in JSON.
        pub(crate) const HEADER: &[&str] = &[$($name),+];
    };
}

columns! {
    Kind "kind",
    Pid "pid",
    Tid "tid",
    StartNs "start_ns",
    EndNs "end_ns",
    Name "name",
    Mangled "mangled",
    Detail "detail",
    Device "device",
    Context "context",
    Stream "stream",
    Correlation "correlation",
    Bytes "bytes",
    Source "source",
    Destination "destination",
    Address "address",
    Value "value",
    Result "result",
    Grid "grid",
    Block "block",
    GraphNode "graph_node",
    ExternalId "external_id",
}

/// Contents of a table cell.
#[derive(Clone, Copy, Debug, serde::Serialize)]
#[serde(untagged)]
pub(crate) enum Cell<'a> {
    Number(u64),
    Text(&'a str),
    Address(#[serde(serialize_with = "hex")] u64),
    Shape([u32; 3]),
}

impl Display for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
            Self::Address(address) => write!(f, "{address:#x}"),
            Self::Shape([x, y, z]) => write!(f, "{x}x{y}x{z}"),
        }
    }
}

/// A record as a row of a table, in the order of [`HEADER`]; `None` in columns that its kind does
/// not have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecordRow<'a>([Option<Cell<'a>>; HEADER.len()]);

impl<'a> RecordRow<'a> {
    pub(super) fn set(&mut self, column: RecordColumn, cell: Cell<'a>) {
        self.0[column as usize] = Some(cell);
    }

    /// The cells as text.
    pub(crate) fn texts(&self) -> impl Iterator<Item = String> {
        let text = |cell: &Option<Cell<'_>>| cell.map_or_else(String::new, |cell| cell.to_string());
        self.0.iter().map(text)
    }
}

impl Serialize for RecordRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, cell) in HEADER.iter().zip(&self.0) {
            if let Some(cell) = cell {
                map.serialize_entry(name, cell)?;
            }
        }
        map.end()
    }
}
