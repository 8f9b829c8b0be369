//! Fields of a record: how each is written in a text line, and its column in the table.

use std::fmt::{self, Write};

use super::columns::{Cell, RecordColumn};
use gpuprobe_model::text::printable;
use gpuprobe_wire as wire;

/// A field of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a> {
    /// Text before the value in the line; `None` if the field is not in the line.
    pub(super) before: Option<&'static str>,
    pub(super) value: FieldValue<'a>,
    /// Its column, if it has one.
    pub(super) column: Option<RecordColumn>,
}

/// Value of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum FieldValue<'a> {
    /// The record does not have it: neither the value nor the text before it is written.
    Missing,
    /// Only the text before it is written.
    Nothing,
    Number(u64),
    Signed(i64),
    /// A number that stands for an unknown one: columns omit it.
    Unknown(u64),
    Address(u64),
    Shape([u32; 3]),
    Text(&'static str),
    /// Text that lines have in upper case.
    Word(&'static str),
    /// A name chosen by a traced program, `?` in lines if it has none. It is escaped, as control
    /// characters must not reach the terminal.
    Name(Option<&'a str>),
}

use FieldValue::{Missing, Number, Unknown, Word};

impl<'a> FieldValue<'a> {
    /// Contents of the column.
    pub(super) fn cell(self) -> Option<Cell<'a>> {
        match self {
            Self::Number(number) => Some(Cell::Number(number)),
            Self::Address(address) => Some(Cell::Address(address)),
            Self::Shape(shape) => Some(Cell::Shape(shape)),
            Self::Text(text) | Self::Word(text) => Some(Cell::Text(text)),
            Self::Name(name) => name.map(Cell::Text),
            Self::Missing | Self::Nothing | Self::Signed(_) | Self::Unknown(_) => None,
        }
    }

    /// Appends the field to a line. Cannot fail, as writing to a string does not.
    pub(super) fn push(self, line: &mut String) -> fmt::Result {
        match self {
            Self::Missing | Self::Nothing => Ok(()),
            Self::Number(number) | Self::Unknown(number) => write!(line, "{number}"),
            Self::Signed(number) => write!(line, "{number}"),
            Self::Address(address) => write!(line, "{}", Cell::Address(address)),
            Self::Shape(shape) => write!(line, "{}", Cell::Shape(shape)),
            Self::Text(text) => line.write_str(text),
            Self::Word(word) => line.write_str(&word.to_ascii_uppercase()),
            Self::Name(name) => {
                let name = name.unwrap_or("?");
                if name.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
                    return line.write_str(name);
                }
                line.write_str(&printable(name))
            }
        }
    }
}

/// A field in the line only.
pub(super) fn line<'a>(before: &'static str, value: FieldValue<'a>) -> Field<'a> {
    Field {
        before: Some(before),
        value,
        column: None,
    }
}

/// Fixed text in the line.
pub(super) fn words(words: &'static str) -> Field<'static> {
    line(words, FieldValue::Nothing)
}

/// A field in a column only.
pub(super) fn cell(column: RecordColumn, value: FieldValue<'_>) -> Field<'_> {
    Field {
        before: None,
        value,
        column: Some(column),
    }
}

/// A field in both the line and a column.
pub(super) fn both<'a>(
    column: RecordColumn,
    before: &'static str,
    value: FieldValue<'a>,
) -> Field<'a> {
    Field {
        before: Some(before),
        ..cell(column, value)
    }
}

/// The kind of a record, with which its line begins.
pub(super) fn kind(kind: &'static str) -> Field<'static> {
    both(RecordColumn::Kind, "", Word(kind))
}

/// The sub-kind of a record.
pub(super) fn detail(name: &'static str) -> Field<'static> {
    both(RecordColumn::Detail, " ", Word(name))
}

/// Size of the operation in bytes.
pub(super) fn size(bytes: u64) -> Field<'static> {
    both(RecordColumn::Bytes, ", size ", Number(bytes))
}

/// CUPTI's correlation id, which links GPU work to calls.
pub(super) fn correlation(number: u32) -> Field<'static> {
    both(
        RecordColumn::Correlation,
        ", correlation ",
        self::number(number),
    )
}

/// A number that is always present.
pub(super) fn number(number: impl Into<u64>) -> FieldValue<'static> {
    Number(number.into())
}

/// A number that is present unless it is 0.
pub(super) fn nonzero(number: impl Into<u64>) -> FieldValue<'static> {
    match number.into() {
        0 => Missing,
        number => Number(number),
    }
}

/// An id, which lines show even if it is unknown.
pub(super) fn id(id: u32) -> FieldValue<'static> {
    match id {
        wire::UNKNOWN_ID => Unknown(id.into()),
        id => number(id),
    }
}

/// An id, if it is known.
pub(super) fn known(id: u32) -> FieldValue<'static> {
    wire::known(id).map_or(Missing, number)
}

/// Device, context and stream of the work.
pub(super) fn place(device: u32, context: u32, stream: u32) -> [Field<'static>; 3] {
    [
        both(RecordColumn::Device, " device ", id(device)),
        both(RecordColumn::Context, ", context ", id(context)),
        both(RecordColumn::Stream, ", stream ", known(stream)),
    ]
}

/// Graph and graph node of the work, which end its line.
pub(super) fn graph(graph: u32, node: u64) -> [Field<'static>; 3] {
    let is_known = !matches!(graph, 0 | wire::UNKNOWN_ID);
    let if_known = |value| if is_known { value } else { Missing };
    [
        line(", graph ", if_known(number(graph))),
        line(", node ", if_known(nonzero(node))),
        cell(RecordColumn::GraphNode, nonzero(node)),
    ]
}
