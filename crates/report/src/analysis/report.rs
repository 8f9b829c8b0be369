//! Implements `gpuprobe report`: runs an analysis and writes its result.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, bail};

use super::answer::AnalysisWriter;
use super::file::AnalysedFile;
pub use super::file::Analysis;
use super::usage::UsageWriter;
use super::{Filter, Played, diff, launches, validate_filter};
use crate::gate::{self, Gate};
use crate::views::profile;
use crate::views::profile::{Profile, ProfiledMemory, Weight};
use crate::{GroupBy, Report, View};
use gpuprobe_os::color::ColorChoice;
use gpuprobe_os::files;
use gpuprobe_os::progress::SharedProgress;
use gpuprobe_os::say;
use gpuprobe_os::terminal;
use gpuprobe_os::terminal::{Layout, StandardStream};
use gpuprobe_recording::{Database, Session};

/// Output formats of analyses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum AnalysisFormat {
    /// Text for a terminal.
    #[default]
    Text,
    /// Tables of tab-separated values.
    Tsv,
    /// One JSON object for the result.
    Json,
    /// Tables of comma-separated values.
    Csv,
}

/// The analysis to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportQuestion {
    /// Live memory over time.
    Usage,
    /// An analysis with a report as its result.
    Report(Analysis),
}

/// Options of `gpuprobe report`.
#[derive(Clone, Debug)]
pub struct ReportConfig {
    /// The recording or export.
    pub file: PathBuf,
    /// The analysis to run.
    pub question: ReportQuestion,
    /// Filter on the events of the file.
    pub filter: Filter,
    /// Grouping, filters and order of live memory.
    pub view: View,
    /// Limit on the rows of a list, in text.
    pub top: Option<usize>,
    /// Output format of the result.
    pub format: AnalysisFormat,
    /// Output file; `None` and `-` for standard output.
    pub output: Option<PathBuf>,
    /// When text has colours.
    pub color: ColorChoice,
    /// Compare with this later run instead.
    pub diff: Option<PathBuf>,
    /// Profiles to write, too.
    pub profiles: profile::ProfileConfig,
    /// Limits on memory that was never freed.
    pub gate: Option<gate::GateConfig>,
}

const SUMMARY: ReportQuestion = ReportQuestion::Report(Analysis::Summary);

/// Profile of memory by call stack: live at the end or at the peak, by `weight`, and ever
/// allocated.
fn profile_of(
    database: &Database,
    session: &Session,
    filter: &Filter,
    config: &profile::ProfileConfig,
) -> Result<Profile> {
    let profile::ProfileConfig {
        weight,
        full_stacks,
        of,
        ..
    } = *config;
    let played = Played::read(database, session, filter, &mut |_| Ok(()))?;
    let time_ns = match weight {
        Weight::Peak => played.peak_ns(),
        Weight::End | Weight::Total => played.last_ns(),
    };
    let time_ns = time_ns.and_then(|ns| ns.checked_add(session.start_epoch_ns?));
    let which = profile::ProfileWeight {
        weight,
        host: filter.host,
        full_stacks,
        of,
    };
    if of == ProfiledMemory::Tensors && !played.has_tensors() {
        bail!("{} has no tensors", database.path().display());
    }
    Ok(Profile {
        run: crate::run::run_of(session),
        ..profile::of_ledger(played.ledger(), played.symbols(), which, time_ns)
    })
}

/// Writes the result. Returns true if memory that was never freed exceeds the limits in `gate`.
/// `progress` shows how far reading is.
pub fn run(config: &ReportConfig, progress: &SharedProgress) -> Result<bool> {
    let gate = config.gate.as_ref().map(Gate::open).transpose()?;
    report(config, progress)?;
    gate.map_or(Ok(false), |gate| judge(config, gate, progress))
}

/// Whether memory that was never freed exceeds the limits.
fn judge(config: &ReportConfig, gate: Gate, progress: &SharedProgress) -> Result<bool> {
    let database = Database::open_with(&config.file, progress)?;
    let report = of_all_sites(&database, &config.filter, gate::view(), Analysis::Leakage)?;
    let memleak = report.memleak.context("there is no memory in the file")?;
    gate.judge(&memleak, true)
}

/// Analyses the memory of a file, with all call sites.
///
/// # Errors
///
/// Returns an error if the file cannot be read or has no memory events.
pub(crate) fn of_all_sites(
    database: &Database,
    filter: &Filter,
    view: View,
    question: Analysis,
) -> Result<Report> {
    validate_filter::check(database, filter)?;
    let session = Session::read(database)?;
    warn_of_version(&session);
    let file = AnalysedFile {
        database,
        session: &session,
        filter,
        view,
        top: None,
        allocations: false,
    };
    file.report(question)
}

/// Warns if the tables of a file are newer than the versions that are supported.
fn warn_of_version(session: &Session) {
    if let Some(major) = session.schema_major().filter(|&major| major > 3) {
        say(format_args!(
            "warning: tables of version {major} are newer than those known (3)"
        ));
    }
}

fn report(config: &ReportConfig, progress: &SharedProgress) -> Result<()> {
    let database = Database::open_with(&config.file, progress)?;
    validate_filter::check(&database, &config.filter)?;
    let profiles = profile::Outputs::open(&config.profiles, Some(&config.file))?;
    let session = Session::read(&database)?;
    warn_of_version(&session);
    if profiles.any() {
        let filter = &config.filter;
        let made = profile_of(&database, &session, filter, &config.profiles)?;
        profiles.write(&made)?;
        if config.question == SUMMARY && config.output.is_none() && config.diff.is_none() {
            return Ok(());
        }
    }
    let is_table = matches!(config.format, AnalysisFormat::Csv | AnalysisFormat::Tsv);
    if is_table && config.question == SUMMARY && config.diff.is_none() {
        bail!(
            "csv and tsv hold one table, and the summary has several: ask for --kernels, --copies, \
             --calls, --waits, --nvtx, --processes or --analysis, or take --format text or json"
        );
    }
    let layout = layout(config.output.as_deref(), config.color);
    let mut out = open(config.output.as_deref(), layout)?;
    let answered = answer(config, &database, &session, &mut *out)
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

/// Layout of text at the output.
pub(super) fn layout(path: Option<&Path>, color: ColorChoice) -> Layout {
    let is_file = path.is_some_and(|path| !files::is_stdout(path));
    Layout::of((!is_file).then_some(StandardStream::Stdout), color)
}

/// Opens the output.
pub(super) fn open(path: Option<&Path>, layout: Layout) -> Result<Box<dyn Write>> {
    let buffered = |out: Box<dyn Write>| Box::new(BufWriter::with_capacity(1 << 18, out));
    let Some(path) = path.filter(|path| !files::is_stdout(path)) else {
        return Ok(buffered(terminal::stdout(layout.colored)));
    };
    let why = || format!("cannot write to {}", path.display());
    let file = files::create(path).with_context(why)?;
    Ok(buffered(Box::new(file)))
}

fn answer(
    config: &ReportConfig,
    database: &Database,
    session: &Session,
    out: &mut dyn Write,
) -> Result<()> {
    let filter = &config.filter;
    let layout =
        layout(config.output.as_deref(), config.color).with_full_names(config.view.full_names);
    let writer = AnalysisWriter {
        format: config.format,
        top: config.top.unwrap_or(usize::MAX),
        layout,
        view: config.view,
        host: filter.host,
    };
    if let Some(after) = &config.diff {
        let after = Database::open_with(after, database.progress())?;
        let grown = diff::diff(database, &after, filter, config.view.groups_by_lines())?;
        return writer.diff(&grown, out);
    }
    let question = match config.question {
        ReportQuestion::Usage => {
            let mut usage = UsageWriter::begin(out, config.format, filter.host)?;
            let played = Played::read(database, session, filter, &mut |change| {
                usage.change(change)
            })?;
            if usage.points == 0 {
                say("no memory event in what was selected");
            }
            let (from, to) = played.range();
            return usage.finish(from, to);
        }
        ReportQuestion::Report(question) => question,
    };
    let is_about_memory = question.is_about_memory();
    let is_about_launches = matches!(
        question,
        Analysis::Kernels | Analysis::Processes | Analysis::Summary
    );
    if is_about_launches && filter.has_range() && launches::are_only_counted(database)? {
        say("--from and --to do not select launches: this recording has their number only");
    }
    let is_json = config.format == AnalysisFormat::Json;
    let is_text = config.format == AnalysisFormat::Text;
    let is_by_site = config.view.group.is_some_and(GroupBy::is_by_site);
    let file = AnalysedFile {
        database,
        session,
        filter,
        view: config.view,
        // In text, `--top` applies to merged lists, except for memory.
        top: config.top.filter(|_| is_json || is_text && is_about_memory),
        allocations: is_about_memory && (is_json || is_text || !is_by_site),
    };
    let report = file.report(question)?;
    writer.question(question, &report, out)
}
