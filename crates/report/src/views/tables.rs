//! Lists as columns, each defined once: text, CSV and TSV are loops over them.

pub(crate) mod memory;
pub(crate) mod records;
pub(crate) mod work;

use std::borrow::{Borrow, Cow};
use std::io::{self, Write};

use gpuprobe_cuda::names::without_version;
use gpuprobe_model::text::{hex, printable, size};
use gpuprobe_os::color::Tone;
use serde::ser::{Serialize, Serializer};

use crate::words::{bar, dimensions, percent, signed_size, time};

/// The value of a column in a row, with its unit, which decides how text and other formats have it.
#[derive(Clone, Debug)]
pub(crate) enum Cell<'a> {
    None,
    Text(Cow<'a, str>),
    /// Name of a kernel, which text simplifies.
    Kernel(Cow<'a, str>),
    /// Name of an exported function, which text has without its version.
    Function(Cow<'a, str>),
    /// A number as text has it, with what belongs to it.
    Words(String),
    /// A word in a tone.
    Toned(&'static str, Option<Tone>),
    Count(u64),
    /// A count that text omits if it is 0.
    Rare(u64),
    Bytes(u64),
    /// A change of bytes.
    Change(i64),
    Ns(u64),
    MeanNs(f64),
    /// A part of 1.
    Share(f64),
    /// The same as a bar.
    Bar(f64),
    BytesPerSecond(f64),
    PerSecond(f64),
    Number(f64),
    Address(u64),
    Shape([u32; 3]),
}

impl<'a> Cell<'a> {
    /// The cell of a value that may be missing.
    pub(crate) fn of<T>(value: Option<T>, cell: impl FnOnce(T) -> Self) -> Self {
        value.map_or(Self::None, cell)
    }

    pub(crate) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text(text.into())
    }

    /// Whether text aligns it left, as words.
    pub(crate) fn is_words(&self) -> bool {
        matches!(
            self,
            Self::Text(_)
                | Self::Kernel(_)
                | Self::Function(_)
                | Self::Toned(..)
                | Self::Bar(_)
                | Self::Shape(_)
        )
    }

    /// As people read it.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::None | Self::Rare(0) => String::new(),
            Self::Text(text) | Self::Kernel(text) => printable(text),
            Self::Function(name) => printable(without_version(name)),
            Self::Words(words) => words.clone(),
            Self::Toned(word, _) => (*word).to_owned(),
            Self::Count(number) | Self::Rare(number) => number.to_string(),
            Self::Bytes(bytes) => size(*bytes),
            Self::Change(bytes) => signed_size(*bytes),
            Self::Ns(ns) => time(*ns as f64),
            Self::MeanNs(ns) => time(*ns),
            Self::Share(share) => percent(*share),
            Self::Bar(share) => bar(*share, BAR),
            // Links and vendors count in powers of ten.
            Self::BytesPerSecond(speed) => format!("{:.1}", speed / 1e9),
            Self::PerSecond(rate) => format!("{rate:.1}"),
            Self::Number(number) => number.to_string(),
            Self::Address(address) => format!("{address:#x}"),
            Self::Shape(shape) => dimensions(*shape),
        }
    }

    /// As programs read it.
    pub(crate) fn value(&self) -> Cow<'_, str> {
        let text = match self {
            Self::None => return "".into(),
            Self::Text(text) | Self::Kernel(text) | Self::Function(text) => {
                return (&**text).into();
            }
            Self::Words(words) => return words.into(),
            Self::Toned(word, _) => return (*word).into(),
            Self::Count(number) | Self::Rare(number) | Self::Bytes(number) | Self::Ns(number) => {
                number.to_string()
            }
            Self::Change(bytes) => bytes.to_string(),
            Self::BytesPerSecond(number) | Self::MeanNs(number) => format!("{number:.0}"),
            Self::Share(number)
            | Self::Bar(number)
            | Self::PerSecond(number)
            | Self::Number(number) => number.to_string(),
            Self::Address(address) => format!("{address:#x}"),
            Self::Shape([x, y, z]) => format!("{x}x{y}x{z}"),
        };
        text.into()
    }
}

impl Serialize for Cell<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(number) | Self::Rare(number) | Self::Bytes(number) | Self::Ns(number) => {
                serializer.serialize_u64(*number)
            }
            Self::Address(address) => hex(address, serializer),
            Self::Shape(shape) => shape.serialize(serializer),
            _ => serializer.serialize_str(&self.value()),
        }
    }
}

/// Blocks of the bar of all.
const BAR: usize = 10;

/// One column of a list of `T`.
#[derive(Debug)]
pub(crate) struct Column<T> {
    /// Its name in CSV and TSV; `None` in text only.
    pub(crate) name: Option<&'static str>,
    /// Its heading in text; `None` in CSV and TSV only.
    pub(crate) title: Option<&'static str>,
    /// Text drops columns with a higher number first, those with 0 never.
    pub(crate) priority: u8,
    /// Text shortens its cells to this, if it must; 0 for cells that are whole.
    pub(crate) min_width: usize,
    pub(crate) cell: fn(&T) -> Cell<'_>,
}

impl<T> Clone for Column<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Column<T> {}

impl<T> Column<T> {
    /// A column of text, which is dropped in the order of `priority`.
    pub(crate) const fn text(title: &'static str, priority: u8, cell: fn(&T) -> Cell<'_>) -> Self {
        Self {
            name: None,
            title: Some(title),
            priority,
            min_width: 0,
            cell,
        }
    }

    /// A column of text, and of CSV and TSV.
    pub(crate) const fn both(
        name: &'static str,
        title: &'static str,
        priority: u8,
        cell: fn(&T) -> Cell<'_>,
    ) -> Self {
        Self::text(title, priority, cell).named(name)
    }

    /// A column of CSV and TSV.
    pub(crate) const fn value(name: &'static str, cell: fn(&T) -> Cell<'_>) -> Self {
        Self {
            name: Some(name),
            title: None,
            priority: 0,
            min_width: 0,
            cell,
        }
    }

    /// The same under this name.
    pub(crate) const fn named(self, name: &'static str) -> Self {
        Self {
            name: Some(name),
            ..self
        }
    }

    /// The same with cells that text shortens.
    pub(crate) const fn min_width(self, min_width: usize) -> Self {
        Self { min_width, ..self }
    }
}

/// How the fields of a row are separated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Separated {
    Csv,
    /// Nothing is quoted: tabs and ends of lines are spaces.
    Tsv,
}

/// Rows of separated values. What all rows begin with is given with each: names and values.
pub(crate) struct Rows<'a> {
    out: csv::Writer<&'a mut dyn Write>,
    separated: Separated,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(separated: Separated, out: &'a mut dyn Write) -> Self {
        let (delimiter, quotes) = match separated {
            Separated::Csv => (b',', csv::QuoteStyle::Necessary),
            Separated::Tsv => (b'\t', csv::QuoteStyle::Never),
        };
        let mut builder = csv::WriterBuilder::new();
        let builder = builder.delimiter(delimiter).quote_style(quotes);
        Self {
            out: builder.from_writer(out),
            separated,
        }
    }

    pub(crate) fn header<T>(&mut self, first: &[&str], columns: &[Column<T>]) -> io::Result<()> {
        let names = columns.iter().filter_map(|column| column.name);
        self.row(first.iter().copied().chain(names).map(Cow::Borrowed))
    }

    pub(crate) fn all<T>(
        &mut self,
        first: &[String],
        columns: &[Column<T>],
        rows: impl IntoIterator<Item: Borrow<T>>,
    ) -> io::Result<()> {
        for row in rows {
            let columns = columns.iter().filter(|column| column.name.is_some());
            let cells: Vec<_> = columns.map(|column| (column.cell)(row.borrow())).collect();
            let first = first.iter().map(|text| Cow::from(&**text));
            self.row(first.chain(cells.iter().map(Cell::value)))?;
        }
        Ok(())
    }

    pub(crate) fn row<'t>(&mut self, fields: impl Iterator<Item = Cow<'t, str>>) -> io::Result<()> {
        for field in fields {
            let field = match self.separated {
                Separated::Csv => field_of_csv(&field),
                Separated::Tsv => field.replace(['\t', '\n', '\r'], " ").into(),
            };
            self.out.write_field(&*field)?;
        }
        Ok(self.out.write_record(None::<&[u8]>)?)
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Text that a spreadsheet would take for a formula, and run when the file is opened, is prefixed with an apostrophe:
/// programs choose their own names, and those of their functions
/// (<https://owasp.org/www-community/attacks/CSV_Injection>).
fn field_of_csv(text: &str) -> Cow<'_, str> {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    match is_formula && text.parse::<f64>().is_err() {
        true => Cow::Owned(format!("'{text}")),
        false => Cow::Borrowed(text),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn program_names_are_not_formulas() {
        let mut written = Vec::new();
        let mut rows = Rows::new(Separated::Csv, &mut written);
        let cells = ["=1+1", "+f", "-f", "@f", "\tf", "-3", "f=1", "", "a,b"];
        rows.row(cells.into_iter().map(Cow::from)).unwrap();
        rows.flush().unwrap();
        drop(rows);
        let text = String::from_utf8(written).unwrap();
        assert_eq!(text, "'=1+1,'+f,'-f,'@f,'\tf,-3,f=1,,\"a,b\"\n");
    }
}
