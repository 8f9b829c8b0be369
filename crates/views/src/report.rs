//! `gpuprobe report` and `gpuprobe explain` of a file.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use super::profile::{Outputs, ProfileConfig};
use super::tables::memory::{GrowthRow, SiteRow, allocations, growth};
use super::tables::work::{COPY_SITES, PROCESSES, columns};
use super::tables::{Column, Rows};
use super::text::file;
use super::text::page::Page;
use super::{html, json};
use super::{to_output, usage};
use gpuprobe_analysis::diff::Diff;
use gpuprobe_analysis::{Analysis, File, Filter, NEWEST, page};
use gpuprobe_model::typed::parse_top;
use gpuprobe_os::color::ColorOption;
use gpuprobe_os::files;
use gpuprobe_os::progress::SharedProgress;
use gpuprobe_os::say;
use gpuprobe_os::terminal::{Layout, StandardStream};
use gpuprobe_report::gate::{Gate, GateConfig, GateReport};
use gpuprobe_report::lists::AllocationRow;
use gpuprobe_report::work::Work;
use gpuprobe_report::{GroupBy, Options, Report, View};

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

/// Options that select what the HTML file lets its reader select, or that are about other outputs; some are groups.
const NOT_WITH_HTML: &[&str] = &[
    "analysis",
    "top",
    "format",
    "output",
    "from",
    "to",
    "host",
    "profiles",
    "View",
    "color",
    "GateConfig",
];

/// Options of `gpuprobe report`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ReportConfig {
    /// A recording or Nsight Systems export [default: the newest gpuprobe-*.sqlite here].
    #[arg(value_name = "FILE", default_value = NEWEST, hide_default_value = true)]
    pub file: PathBuf,

    /// What to report.
    #[arg(long, value_enum, value_name = "NAME", default_value_t)]
    pub analysis: Analysis,

    /// Show what grew from FILE to this later run, by call stack.
    #[arg(long, value_name = "OTHER", conflicts_with = "analysis")]
    pub diff: Option<PathBuf>,

    /// Filter on the events of the file.
    #[command(flatten)]
    pub filter: Filter,

    /// Rows at most, largest first, or all.
    #[arg(long, value_name = "N|all", value_parser = parse_top, help_heading = "Output")]
    pub top: Option<usize>,

    /// Format of the answer.
    #[arg(long, value_enum, default_value_t, help_heading = "Output")]
    pub format: AnalysisFormat,

    /// Write to this file instead of standard output (`-`).
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,

    /// When text has colours.
    #[command(flatten)]
    pub color: ColorOption,

    /// Write one self-contained HTML file: timelines, call sites, kernels, copies; beside OTHER with --diff.
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Output",
        conflicts_with_all = NOT_WITH_HTML
    )]
    pub html: Option<PathBuf>,

    /// Profiles to write, too.
    #[command(flatten)]
    pub profiles: ProfileConfig,

    /// Limits on memory that was never freed.
    #[command(flatten)]
    pub gate: Option<GateConfig>,

    /// Grouping, filters and order of live memory.
    #[command(flatten)]
    pub view: View,
}

/// Writes what is asked for; `progress` shows how far reading is. Returns whether the gate fails.
///
/// # Errors
///
/// The file cannot be read or has nothing of what is asked for, or an output cannot be written.
pub fn run(config: &ReportConfig, progress: &SharedProgress) -> Result<bool> {
    if let Some(output) = &config.html {
        let (file, after) = (&config.file, config.diff.as_deref());
        let page = page::read(file, after, &config.filter, progress)?;
        html::write(&page, output)?;
        return Ok(false);
    }
    let gate = config.gate.as_ref().map(Gate::open).transpose()?;
    let file = File::open(&config.file, config.filter, progress)?;
    let profiles = Outputs::open(&config.profiles, Some(&config.file))?;
    let has_profiles = profiles.any();
    if has_profiles {
        let mut scope = config.profiles.scope;
        scope.full_stacks = config.view.full_stacks;
        profiles.write(&file.profile(scope)?)?;
    }
    let is_summary = config.analysis == Analysis::Summary && config.diff.is_none();
    let judged = gate.map(|gate| {
        let report = file.report(Analysis::Explain, &gate.options(Options::default()))?;
        let memleak = report.memleak.context("there is no memory in the file")?;
        let explain = report.explain.context("there is no memory in the file")?;
        anyhow::Ok(gate.judge(&memleak, &explain, file.source()))
    });
    let judged = judged.transpose()?;
    if !(has_profiles && is_summary && config.output.is_none()) {
        if is_summary && matches!(config.format, AnalysisFormat::Csv | AnalysisFormat::Tsv) {
            bail!(
                "csv and tsv hold one table, and the summary has several: ask for one with \
                 --analysis, or take --format text or json"
            );
        }
        write(config, &file, judged.as_ref().map(|judged| &judged.report))?;
    }
    judged.map_or(Ok(false), |judged| super::gate::write(&judged))
}

/// Writes the answer to the question.
fn write(config: &ReportConfig, file: &File, gate: Option<&GateReport>) -> Result<()> {
    let path = config.output.as_deref();
    let path = path.filter(|path| !files::is_stdout(path));
    let stream = path.is_none().then_some(StandardStream::Stdout);
    let layout = Layout {
        verbose: config.view.verbose,
        ..Layout::of(stream, config.color, config.view.full_names)
    };
    to_output(path, layout.colored, |out| {
        let mut answers = Answers {
            config,
            layout,
            gate,
            out,
        };
        answers.answer(file)
    })
}

/// Writes answers in a format.
struct Answers<'a> {
    config: &'a ReportConfig,
    layout: Layout,
    gate: Option<&'a GateReport>,
    out: &'a mut dyn Write,
}

impl Answers<'_> {
    fn answer(&mut self, file: &File) -> Result<()> {
        let (filter, format) = (&self.config.filter, self.config.format);
        if let Some(after) = &self.config.diff {
            let after = file.other(after)?;
            let grown = file.diff(&after, self.config.view.groups_by_lines(), filter.host)?;
            self.diff(&grown)?;
            return Ok(());
        }
        let question = self.config.analysis;
        if question == Analysis::Usage {
            usage::write(file, format, self.out)?;
            return Ok(());
        }
        if filter.has_range() && file.has_no_times_for(question)? {
            say("--from and --to do not select launches: this recording has their number only");
        }
        let is_about_memory = question.is_about_memory();
        let is_json = format == AnalysisFormat::Json;
        let is_text = format == AnalysisFormat::Text;
        // In text, `--top` applies to merged lists, except for memory.
        let has_top = is_json || is_text && is_about_memory;
        let lists = Options {
            view: self.config.view,
            top: self.config.top.filter(|_| has_top),
            allocations: is_about_memory
                && question != Analysis::Explain
                && (is_json || is_text || !self.is_by_site()),
            ..Options::default()
        };
        let mut report = file.report(question, &lists)?;
        report.gate = self.gate.cloned();
        Ok(self.report(question, &report)?)
    }

    fn is_by_site(&self) -> bool {
        self.config.view.group.is_some_and(GroupBy::is_by_site)
    }

    fn report(&mut self, question: Analysis, report: &Report) -> io::Result<()> {
        let (view, host) = (&self.config.view, self.config.filter.host);
        match self.config.format {
            AnalysisFormat::Json => return json::object(report, self.out),
            AnalysisFormat::Text => {
                return self.text(|page, top| file::write(question, report, top, host, page));
            }
            AnalysisFormat::Tsv | AnalysisFormat::Csv => {}
        }
        let copies = report.bandwidth_util.as_ref();
        if let Some(copies) = copies.filter(|_| question == Analysis::Copies && self.is_by_site()) {
            return self.table(COPY_SITES, &copies.sites);
        }
        if let Some(list) = question.list() {
            return self.table(columns(list), &Work::of_file(list, report));
        }
        let about = report.about.as_ref();
        if let (Analysis::Processes, Some(about)) = (question, about) {
            return self.table(PROCESSES, about.processes.as_deref().unwrap_or_default());
        }
        let memleak = report.memleak.as_ref();
        let Some(memleak) = memleak.filter(|_| question.is_about_memory()) else {
            return Ok(());
        };
        if self.is_by_site() {
            return self.table(SiteRow::columns(), &SiteRow::all(memleak, view.sort, host));
        }
        let first_ns = about.map_or(0, |about| about.first_ns);
        let rows = AllocationRow::of_file(memleak, view.sort, host, first_ns);
        self.table(allocations(), &rows)
    }

    fn diff(&mut self, diff: &Diff) -> io::Result<()> {
        match self.config.format {
            AnalysisFormat::Json => json::object(diff, self.out),
            AnalysisFormat::Text => {
                let view = &self.config.view;
                self.text(|page, top| file::write_diff(diff, view, top, page))
            }
            AnalysisFormat::Tsv | AnalysisFormat::Csv => {
                let lists = diff.lists();
                let lists = lists.iter();
                let rows = lists.flat_map(|(what, _, all)| all.iter().map(|one| (*what, one)));
                self.table(growth(), &rows.collect::<Vec<GrowthRow<'_>>>())
            }
        }
    }

    /// Writes text, with a limit on the rows of a list.
    fn text(&mut self, write: impl FnOnce(&mut Page, usize)) -> io::Result<()> {
        let page = Page {
            layout: self.layout,
            is_of_file: true,
            ..Page::default()
        };
        let top = self.config.top.unwrap_or(usize::MAX);
        page.print(self.out, |page| write(page, top))
    }

    /// Writes a table of CSV or TSV.
    fn table<T>(&mut self, columns: &[Column<T>], rows: &[T]) -> io::Result<()> {
        let is_tsv = self.config.format == AnalysisFormat::Tsv;
        let delimiter = if is_tsv { b'\t' } else { b',' };
        let rows = &rows[..rows.len().min(self.config.top.unwrap_or(usize::MAX))];
        Rows::new(delimiter, self.out).table(true, &[], &[columns], rows)
    }
}
