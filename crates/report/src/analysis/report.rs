//! `gpuprobe report`: runs an analysis and writes its result.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result};

use super::activity::{self, Work};
use super::answer::{Answer, json, written};
use super::events::MEMORY;
use super::listing::{Which, listing};
use super::summary::summary;
use super::usage::Usage;
use super::{Selection, classic, diff, pass, text};
use crate::profile;
use gpuprobe_os::files;
use gpuprobe_os::say;
use gpuprobe_os::terminal;
use gpuprobe_recording::{Database, Session};

/// Formats of analyses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
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
    /// Write profiles too.
    pub profiles: profile::Config,
    /// Write the classic tables into this folder too.
    pub export_tsv: Option<PathBuf>,
}

/// Answers.
///
/// # Errors
/// Those of the file and of the output.
pub fn run(config: &Config) -> Result<()> {
    let database = Database::open(&config.file)?;
    let profiles = profile::Outputs::open(&config.profiles, Some(&config.file))?;
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
    if profiles.any() {
        let profile::Config {
            weight,
            full_stacks,
            ..
        } = config.profiles;
        let selection = &config.selection;
        let made = super::profile::profile(&database, &session, selection, weight, full_stacks)?;
        profiles.write(&made)?;
        if config.question == Question::Summary && config.output.is_none() && config.diff.is_none()
        {
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
        return Ok((buffered(terminal::stdout()), None));
    };
    let why = || format!("cannot write to {}", path.display());
    let file = files::create(path).with_context(why)?;
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
    let about_more = matches!(
        config.question,
        Question::Kernels | Question::Copies | Question::Summary
    );
    if about_more && (selection.from_ns.is_some() || selection.to_ns.is_some()) {
        say("--from and --to select memory events; launches and copies are all shown");
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
        Question::Kernels => {
            let work = Work::read(database, session, selection)?;
            writer.kernels(&activity::kernels(database, selection, &work)?, out)
        }
        Question::Copies => {
            let work = Work::read(database, session, selection)?;
            writer.copies(&activity::copies(database, selection, &work)?, out)
        }
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
