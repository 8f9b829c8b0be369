//! `gpuprobe report`: runs an analysis and writes its result.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result};
use serde::Serialize;

use super::activity::{self, Copies, Kernels};
use super::events::MEMORY;
use super::listing::{Listing, Which, listing};
use super::summary::summary;
use super::usage::Usage;
use super::{Selection, classic, diff, pass, text};
use crate::cli::say;
use crate::recording::chains::Stack;
use crate::recording::{Database, Session};

/// Formats of analyses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// Tab-separated.
    Tsv,
    /// One JSON object.
    Json,
    /// Comma-separated.
    Csv,
}

/// What is to be found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// The most that was live, and what.
    Watermark,
    /// How much was live over time.
    Usage,
    /// What was never freed.
    Leakage,
    /// What was launched.
    Kernels,
    /// What was copied.
    Copies,
    /// All of it on one page.
    Summary,
}

/// What `gpuprobe report` does.
#[derive(Clone, Debug)]
pub struct Config {
    /// The recording or export.
    pub file: PathBuf,
    /// What is asked.
    pub question: Question,
    /// What of the file is looked at.
    pub selection: Selection,
    /// Add up by call stack.
    pub group: bool,
    /// Rows at most, in text.
    pub top: Option<usize>,
    /// How the answer is written.
    pub format: Format,
    /// Where to; `None` for standard output.
    pub output: Option<PathBuf>,
    /// Compare with this later run instead.
    pub diff: Option<PathBuf>,
    /// Write the classic tables into this folder too.
    pub export_tsv: Option<PathBuf>,
}

/// Answers.
///
/// # Errors
/// Those of the file and of the output.
pub fn run(config: &Config) -> Result<()> {
    let database = Database::open(&config.file)?;
    let session = Session::read(&database)?;
    if let Some(major) = session.schema_major().filter(|&major| major > 3) {
        say(format_args!(
            "warning: tables of version {major} are newer than those known (3)"
        ));
    }
    if let Some(folder) = &config.export_tsv {
        classic::export(&database, &config.selection, folder)?;
        if config.question == Question::Summary && config.output.is_none() {
            return Ok(());
        }
    }
    let (mut out, file) = open(config.output.as_deref())?;
    let answered = answer(config, &database, &session, &mut *out, file)
        .and_then(|()| out.flush().context("cannot write the report"));
    match answered {
        Err(error) if is_broken_pipe(&error) => Ok(()),
        answered => answered,
    }
}

fn is_broken_pipe(error: &Error) -> bool {
    let cause = error.root_cause().downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == ErrorKind::BrokenPipe)
}

/// Where the answer goes, and the file behind it, if it is a plain one.
fn open(path: Option<&Path>) -> Result<(Box<dyn Write>, Option<File>)> {
    let buffered = |out: Box<dyn Write>| Box::new(BufWriter::with_capacity(1 << 18, out));
    let Some(path) = path else {
        return Ok((buffered(Box::new(io::stdout().lock())), None));
    };
    let why = || format!("cannot write to {}", path.display());
    let file = File::create(path).with_context(why)?;
    let is_plain = file.metadata().with_context(why)?.is_file();
    let again = is_plain
        .then(|| file.try_clone())
        .transpose()
        .with_context(why)?;
    Ok((buffered(Box::new(file)), again))
}

fn answer(
    config: &Config,
    database: &Database,
    session: &Session,
    out: &mut dyn Write,
    file: Option<File>,
) -> Result<()> {
    let selection = &config.selection;
    let writer = Answer {
        format: config.format,
        top: config.top.unwrap_or(usize::MAX),
    };
    if let Some(after) = &config.diff {
        let grown = diff::diff(database, &Database::open(after)?, selection)?;
        return writer.diff(&grown, out);
    }
    match config.question {
        Question::Usage => {
            let mut usage = Usage::begin(out, file, config.format, selection.host)?;
            pass(database, selection, &mut usage)?;
            if usage.points == 0 {
                say("no memory event in what was selected");
            }
            usage.finish()
        }
        Question::Watermark | Question::Leakage => {
            let which = match config.question {
                Question::Watermark => Which::Watermark,
                _ => Which::Leakage,
            };
            let tracker = pass(database, selection, &mut ())?;
            let found = listing(which, database, session, &tracker, selection, config.group)?;
            writer.listing(&found, out)
        }
        Question::Kernels => writer.kernels(&activity::kernels(database, selection)?, out),
        Question::Copies => writer.copies(&activity::copies(database, selection)?, out),
        Question::Summary => {
            let has_memory = database.has_table(MEMORY);
            let tracker = has_memory
                .then(|| pass(database, selection, &mut ()))
                .transpose()?;
            let page = summary(database, session, tracker.as_ref(), selection)?;
            match config.format {
                Format::Json => json(&page, out),
                _ => written(text::summary(&page, out)),
            }
        }
    }
}

/// Writes answers in a format.
struct Answer {
    format: Format,
    top: usize,
}

fn written(result: io::Result<()>) -> Result<()> {
    result.context("cannot write the report")
}

fn json(value: &impl Serialize, out: &mut dyn Write) -> Result<()> {
    serde_json::to_writer(&mut *out, value)
        .map_err(io::Error::from)
        .context("cannot write the report")?;
    written(out.write_all(b"\n"))
}

impl Answer {
    fn table(
        &self,
        columns: &[&str],
        rows: impl Iterator<Item = Vec<String>>,
        out: &mut dyn Write,
    ) -> Result<()> {
        let is_tsv = self.format == Format::Tsv;
        let mut table = csv::WriterBuilder::new()
            .delimiter(if is_tsv { b'\t' } else { b',' })
            .quote_style(if is_tsv {
                csv::QuoteStyle::Never
            } else {
                csv::QuoteStyle::Necessary
            })
            .from_writer(out);
        let wrote = |result: csv::Result<()>| {
            result
                .map_err(io::Error::from)
                .context("cannot write the report")
        };
        wrote(table.write_record(columns))?;
        for row in rows {
            let fields = row.iter().map(|field| match is_tsv {
                true => field.replace(['\t', '\n', '\r'], " "),
                false => field.clone(),
            });
            wrote(table.write_record(fields))?;
        }
        written(table.flush())
    }

    fn listing(&self, listing: &Listing, out: &mut dyn Write) -> Result<()> {
        match self.format {
            Format::Text => return written(text::listing(listing, self.top, out)),
            Format::Json => return json(listing, out),
            Format::Tsv | Format::Csv => {}
        }
        if let Some(groups) = &listing.groups {
            let columns = ["bytes", "allocations", "kind", "operation", "call_stack"];
            let rows = groups.iter().map(|group| {
                let operation = group.operation.as_deref().unwrap_or("").to_owned();
                let (bytes, count) = (group.bytes.to_string(), group.allocations.to_string());
                vec![
                    bytes,
                    count,
                    group.kind.to_owned(),
                    operation,
                    line(&group.stack),
                ]
            });
            return self.table(&columns, rows, out);
        }
        let columns = [
            "pid",
            "tid",
            "device",
            "address",
            "start_time",
            "bytes",
            "kind",
            "operation",
            "var_name",
            "trace",
            "call_stack",
        ];
        let rows = listing.allocations.iter().flatten().map(|row| {
            vec![
                row.pid.to_string(),
                row.tid.map_or(String::new(), |tid| tid.to_string()),
                row.device.to_string(),
                format!("{:#x}", row.address),
                row.start_ns.to_string(),
                row.bytes.to_string(),
                row.kind.to_owned(),
                row.operation.as_deref().unwrap_or("").to_owned(),
                row.variable.as_deref().unwrap_or("").to_owned(),
                row.trace.name().to_owned(),
                line(&row.stack),
            ]
        });
        self.table(&columns, rows, out)
    }

    fn kernels(&self, kernels: &Kernels, out: &mut dyn Write) -> Result<()> {
        match self.format {
            Format::Text => return written(text::kernels(kernels, self.top, out)),
            Format::Json => return json(kernels, out),
            Format::Tsv | Format::Csv => {}
        }
        let number = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
        let rows = kernels.kernels.iter().map(|kernel| {
            vec![
                kernel.name.to_string(),
                kernel.launches.to_string(),
                number(kernel.captured),
                number(kernel.gpu_ns),
                number(kernel.longest_ns),
            ]
        });
        self.table(
            &["name", "launches", "captured", "gpu_ns", "longest_ns"],
            rows,
            out,
        )
    }

    fn copies(&self, copies: &[Copies], out: &mut dyn Write) -> Result<()> {
        match self.format {
            Format::Text => return written(text::copies(copies, out)),
            Format::Json => return json(&copies, out),
            Format::Tsv | Format::Csv => {}
        }
        let rows = copies.iter().map(|copy| {
            vec![
                copy.direction.clone(),
                copy.mode.clone(),
                copy.count.to_string(),
                copy.bytes.to_string(),
                copy.ns.map_or(String::new(), |ns| ns.to_string()),
                copy.bytes_per_second
                    .map_or(String::new(), |speed| format!("{speed:.0}")),
            ]
        });
        let columns = [
            "direction",
            "mode",
            "count",
            "bytes",
            "ns",
            "bytes_per_second",
        ];
        self.table(&columns, rows, out)
    }

    fn diff(&self, diff: &diff::Diff, out: &mut dyn Write) -> Result<()> {
        match self.format {
            Format::Text => return written(text::diff(diff, self.top, out)),
            Format::Json => return json(diff, out),
            Format::Tsv | Format::Csv => {}
        }
        let rows = [("watermark", &diff.at_peak), ("leakage", &diff.never_freed)];
        let rows = rows.into_iter().flat_map(|(what, stacks)| {
            stacks.iter().map(move |grown| {
                vec![
                    what.to_owned(),
                    grown.delta().to_string(),
                    grown.bytes[0].to_string(),
                    grown.bytes[1].to_string(),
                    grown.stack.join(" -> "),
                ]
            })
        });
        self.table(
            &["analysis", "delta", "before", "after", "call_stack"],
            rows,
            out,
        )
    }
}

/// A call stack on one line, innermost frame first.
fn line(stack: &Stack) -> String {
    let frames = stack
        .iter()
        .map(|frame| format!("[{}] ({})", frame.function, frame.module));
    frames.collect::<Vec<_>>().join(" -> ")
}
