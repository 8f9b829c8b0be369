//! Lists as columns, each defined once: text, CSV and TSV are loops over them.

pub(crate) mod memory;
pub(crate) mod records;
pub(crate) mod work;

use std::borrow::{Borrow, Cow};
use std::io::{self, Write};

use gpuprobe_cuda::names::without_version;
use gpuprobe_model::text::{printable, size};
use serde_json::Value;

use gpuprobe_report::verdict::Verdict;
use gpuprobe_report::words::{bar, dimensions, percent, signed_size, time};

/// The value of a column in a row, with its unit, which decides how text and other formats have it.
#[derive(Clone, Debug)]
pub(crate) enum Cell<'a> {
    None,
    Text(Cow<'a, str>),
    /// Name of a kernel, which text simplifies.
    Kernel(&'a str),
    /// A call path, of which text leaves out lines of callees before it cuts functions.
    Path(&'a str),
    /// Name of an exported function, which text has without its version.
    Function(&'a str),
    /// A number as text has it, with what belongs to it.
    Words(String),
    Verdict(Verdict),
    Count(u64),
    /// A count that text omits if it is 0.
    Rare(u64),
    Bytes(u64),
    /// A change of bytes.
    Change(i64),
    Ns(u64),
    /// A part of 1.
    Share(f64),
    /// The same as a bar.
    Bar(f64),
    BytesPerSecond(f64),
    PerSecond(f64),
    Address(u64),
    Shape([u32; 3]),
}

fn count(number: Option<impl Into<u64>>) -> Cell<'static> {
    some(number.map(Into::into), Cell::Count)
}

pub(crate) fn text<'a>(text: impl Into<Cow<'a, str>>) -> Cell<'a> {
    Cell::Text(text.into())
}

/// A text that may be missing.
fn known(text: &Option<String>) -> Cell<'_> {
    text.as_deref().map_or(Cell::None, self::text)
}

/// A value that may be missing.
fn some<T>(value: Option<T>, cell: fn(T) -> Cell<'static>) -> Cell<'static> {
    value.map_or(Cell::None, cell)
}

impl Cell<'_> {
    /// Whether text aligns it left, as words.
    pub(crate) fn is_words(&self) -> bool {
        use Cell::{Bar, Function, Kernel, Path, Shape, Text, Verdict};
        matches!(
            self,
            Text(_) | Kernel(_) | Path(_) | Function(_) | Verdict(_) | Bar(_) | Shape(_)
        )
    }

    /// As people read it.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Rare(0) => String::new(),
            Self::Text(text) => printable(text),
            Self::Kernel(name) | Self::Path(name) => printable(name),
            Self::Function(name) => printable(without_version(name)),
            Self::Bytes(bytes) => size(*bytes),
            Self::Change(bytes) => signed_size(*bytes),
            Self::Ns(ns) => time(*ns as f64),
            Self::Share(share) => percent(*share),
            Self::Bar(share) => bar(*share, BAR),
            // Links and vendors count in powers of ten.
            Self::BytesPerSecond(speed) => format!("{:.1}", speed / 1e9),
            Self::PerSecond(rate) => format!("{rate:.1}"),
            Self::Shape(shape) => dimensions(*shape),
            _ => self.value().into_owned(),
        }
    }

    /// As programs read it.
    pub(crate) fn value(&self) -> Cow<'_, str> {
        match self {
            Self::None => "".into(),
            Self::Text(text) => (&**text).into(),
            Self::Kernel(name) | Self::Path(name) | Self::Function(name) => (*name).into(),
            Self::Words(words) => words.into(),
            Self::Verdict(verdict) => verdict.name().into(),
            Self::Count(number) | Self::Rare(number) | Self::Bytes(number) | Self::Ns(number) => {
                number.to_string().into()
            }
            Self::Change(bytes) => bytes.to_string().into(),
            Self::BytesPerSecond(number) => format!("{number:.0}").into(),
            Self::Share(number) | Self::Bar(number) | Self::PerSecond(number) => {
                number.to_string().into()
            }
            Self::Address(address) => format!("{address:#x}").into(),
            Self::Shape([x, y, z]) => format!("{x}x{y}x{z}").into(),
        }
    }
}

/// A field of JSON, as text and CSV have it.
pub(crate) fn words(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(words).collect::<Vec<_>>().join("x"),
        Value::Number(number) if number.is_f64() => number.as_f64().unwrap_or_default().to_string(),
        other => other.to_string(),
    }
}

/// Blocks of the bar of all.
const BAR: usize = 10;

/// One column of a list of `T`.
#[derive(Debug)]
pub(crate) struct Column<T> {
    /// Its name in CSV and TSV; empty in text only.
    name: &'static str,
    /// Its heading in text; `None` in CSV and TSV only.
    pub(crate) title: Option<&'static str>,
    /// Text drops columns with a higher number first, those with 0 never.
    pub(crate) priority: u8,
    /// Text shortens its cells to this, if it must; 0 for cells that are whole.
    pub(crate) min_width: usize,
    pub(crate) cell: fn(&T) -> Cell<'_>,
}

/// A column of text, and of CSV and TSV.
const fn both<T>(
    name: &'static str,
    title: &'static str,
    priority: u8,
    cell: fn(&T) -> Cell<'_>,
) -> Column<T> {
    Column {
        name,
        title: Some(title),
        priority,
        min_width: 0,
        cell,
    }
}

/// A column of text, which is dropped in the order of `priority`.
pub(crate) const fn shown<T>(
    title: &'static str,
    priority: u8,
    cell: fn(&T) -> Cell<'_>,
) -> Column<T> {
    both("", title, priority, cell)
}

/// A column of CSV and TSV.
const fn value<T>(name: &'static str, cell: fn(&T) -> Cell<'_>) -> Column<T> {
    let column = both(name, "", 0, cell);
    Column {
        title: None,
        ..column
    }
}

impl<T> Column<T> {
    /// The column with cells that text shortens, to `min_width` at the least.
    const fn cut(self, min_width: usize) -> Self {
        Self { min_width, ..self }
    }
}

/// Rows of values with a delimiter between them.
pub(crate) struct Rows<'a> {
    out: csv::Writer<&'a mut dyn Write>,
    delimiter: u8,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(delimiter: u8, out: &'a mut dyn Write) -> Self {
        let quotes = match delimiter {
            b'\t' => csv::QuoteStyle::Never,
            _ => csv::QuoteStyle::Necessary,
        };
        let mut builder = csv::WriterBuilder::new();
        let builder = builder.delimiter(delimiter).quote_style(quotes);
        Self {
            out: builder.from_writer(out),
            delimiter,
        }
    }

    /// Writes a table; before the names of its columns, if it `has_header`, and the values of all rows are `first`.
    pub(crate) fn table<T>(
        &mut self,
        has_header: bool,
        first: &[(&str, String)],
        columns: &[&[Column<T>]],
        rows: impl IntoIterator<Item: Borrow<T>>,
    ) -> io::Result<()> {
        let columns = columns.iter().copied().flatten();
        let columns: Vec<_> = columns.filter(|one| !one.name.is_empty()).collect();
        if has_header {
            let names = first.iter().map(|(name, _)| *name);
            let names = names.chain(columns.iter().map(|column| column.name));
            self.row(names.map(Cow::from))?;
        }
        for row in rows {
            let cells = columns.iter().map(|column| (column.cell)(row.borrow()));
            let cells: Vec<_> = cells.collect();
            let first = first.iter().map(|(_, value)| Cow::from(value));
            self.row(first.chain(cells.iter().map(Cell::value)))?;
        }
        self.out.flush()
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    pub(crate) fn row<'t>(&mut self, fields: impl Iterator<Item = Cow<'t, str>>) -> io::Result<()> {
        for field in fields {
            let field = match self.delimiter {
                // Nothing is quoted.
                b'\t' => field.replace(['\t', '\n', '\r'], " ").into(),
                _ => field_of_csv(&field),
            };
            self.out.write_field(&*field)?;
        }
        Ok(self.out.write_record(None::<&[u8]>)?)
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
        let mut rows = Rows::new(b',', &mut written);
        let cells = ["=1+1", "+f", "-f", "@f", "\tf", "-3", "f=1", "", "a,b"];
        rows.row(cells.into_iter().map(Cow::from)).unwrap();
        drop(rows);
        let text = String::from_utf8(written).unwrap();
        assert_eq!(text, "'=1+1,'+f,'-f,'@f,'\tf,-3,f=1,,\"a,b\"\n");
    }
}
