//! Recordings, logs and texts that anybody may have written: for the fuzz targets and for the tests that replay
//! their findings. Errors are expected; a panic or a hang is a bug.

// A fuzz target uses one of these functions.
#![allow(dead_code)]

mod tensors;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gpuprobe_analysis::chart;
use gpuprobe_analysis::page;
use gpuprobe_analysis::playback;
use gpuprobe_analysis::{Analysis, File, Filter};
use gpuprobe_cuda::{KindSet, MemoryKind, Modes};
use gpuprobe_model::Lost;
use gpuprobe_model::clock::WallClock;
use gpuprobe_os::color::{ColorChoice, ColorOption};
use gpuprobe_os::progress::SharedProgress;
use gpuprobe_os::terminal::Layout;
use gpuprobe_recording::log;
use gpuprobe_recording::player::{Played, Player};
use gpuprobe_report as report;
use gpuprobe_report::gate;
use gpuprobe_report::profile::{self, ProfileScope, Weight};
use gpuprobe_report::{ReportSources, View};
use gpuprobe_views::ReportFormat;
use gpuprobe_views::profile::ProfileConfig;
use gpuprobe_views::report as question;
use gpuprobe_views::{export, html, plot};

pub(crate) use tensors::play_tensors;

/// Enables every mode.
const MODES: Modes = Modes {
    memleak: true,
    cudatrace: true,
    bandwidth_util: true,
    activity: true,
};

/// Replays `bytes` as the log of a run, or as a single record, and makes its reports. Returns the
/// number of events.
pub(crate) fn play(bytes: &[u8]) -> usize {
    let kinds: KindSet = MemoryKind::ALL.into_iter().collect();
    let mut player = Player::new(MODES, kinds);
    player.state.watch(true);
    let mut events = 0;
    for item in log::items(bytes, Some).chain(log::item_of_record(bytes)) {
        player.state.changes().clear();
        match player.play(item) {
            Played::Event(..) => events += 1,
            Played::Report(_) => make_reports(&mut player),
            _ => {}
        }
    }
    make_reports(&mut player);
    events
}

/// Makes the reports of `player` in all formats.
fn make_reports(player: &mut Player) {
    let clock = WallClock::at(chrono::DateTime::UNIX_EPOCH.fixed_offset(), 0);
    for (is_final, stacks) in [(false, false), (true, true)] {
        let options = report::Options {
            modes: MODES,
            top: Some(3),
            view: View {
                stacks_shown: true,
                full_stacks: is_final,
                ..View::default()
            },
            stacks,
            host_wide: !stacks,
            allocations: true,
            explains: false,
            now_ns: u64::MAX,
            is_final,
            since_last: Duration::from_nanos(1),
            since_start: Duration::from_nanos(1),
            link: None,
            detail: None,
            only_detail: false,
        };
        let state = &player.state;
        let lost = Lost::default();
        let mut history = report::History::default();
        let sources = |history| ReportSources {
            history,
            ..ReportSources::of_file(Some(&clock), &player.symbols)
        };
        let first = report::build(state, lost, &options, sources(None));
        history.note(&state.ledger, &first, 0);
        let made = report::build(state, lost, &options, sources(Some(&history)));
        for format in [ReportFormat::Text, ReportFormat::Json, ReportFormat::Csv] {
            let mut writer = format.writer(true);
            writer.lay_out(Layout {
                columns: (!stacks).then_some(80),
                colored: stacks,
                full_names: stacks,
                verbose: false,
            });
            let _ = writer.write(&made, &mut io::sink());
        }
    }
    let which = ProfileScope {
        weight: Weight::Peak,
        full_stacks: true,
        ..ProfileScope::default()
    };
    profile::of_ledger(&player.state.ledger, &player.symbols, which, None);
    player.state.mark_reported();
}

/// A filter that includes host memory.
fn host() -> Filter {
    Filter {
        host: true,
        ..Filter::default()
    }
}

/// Options of a summary, on which the other questions are based.
fn summary(file: &Path, output: Option<PathBuf>) -> question::ReportConfig {
    question::ReportConfig {
        file: file.to_owned(),
        top: Some(5),
        output,
        color: ColorOption {
            color: ColorChoice::Always,
        },
        ..question::ReportConfig::default()
    }
}

/// Questions that cover every format and every output.
fn questions(file: &Path, folder: &Path) -> [question::ReportConfig; 6] {
    let out = |name: &str| Some(folder.join(name));
    let plain = summary(file, out("answer"));
    [
        question::ReportConfig {
            profiles: ProfileConfig {
                folded: out("folded"),
                flamegraph: out("flames.svg"),
                pprof: out("profile.pb.gz"),
                scope: ProfileScope {
                    weight: Weight::Peak,
                    ..ProfileScope::default()
                },
            },
            view: View {
                full_stacks: true,
                ..View::default()
            },
            ..plain.clone()
        },
        question::ReportConfig {
            analysis: Analysis::Watermark,
            filter: host(),
            ..plain.clone()
        },
        question::ReportConfig {
            analysis: Analysis::Leakage,
            view: View {
                group: Some(report::GroupBy::Stack),
                min_bytes: Some(1),
                ..View::default()
            },
            format: question::AnalysisFormat::Json,
            gate: Some(gate::GateConfig {
                ignored: vec!["*a*b".to_owned()],
                junit: out("junit.xml"),
                ..gate::GateConfig::default()
            }),
            ..plain.clone()
        },
        question::ReportConfig {
            analysis: Analysis::Usage,
            format: question::AnalysisFormat::Csv,
            ..plain.clone()
        },
        question::ReportConfig {
            analysis: Analysis::Kernels,
            format: question::AnalysisFormat::Tsv,
            ..plain.clone()
        },
        question::ReportConfig {
            analysis: Analysis::Copies,
            ..plain
        },
    ]
}

/// Draws any text as the output of nvidia-smi, and as a usage report.
pub(crate) fn plot_text(text: &str, picture: &Path) {
    let draw = |chart: &chart::Chart| plot::write(chart, picture, (200, 100)).unwrap();
    for (zero_ns, offset_s) in [(0, 0), (i64::MAX, 86_399), (i64::MIN, -86_399)] {
        let Ok(samples) = chart::parse_smi(text) else {
            break;
        };
        draw(&chart::Chart {
            lines: chart::smi_lines(&samples, zero_ns, offset_s),
            ..chart::Chart::default()
        });
    }
    if let Some(chart) = chart::of_usage(text) {
        draw(&chart);
    }
}

/// Reads `file` as a recording or an export, in every possible way. Output goes into `folder`.
pub(crate) fn analyse(file: &Path, folder: &Path) {
    let progress: SharedProgress = Arc::new(());
    commands(file, folder)
        .iter()
        .for_each(|(_, command)| command(&progress));
}

/// A command that reads a file, and its name.
type Command = (&'static str, Box<dyn Fn(&SharedProgress)>);

/// All commands that read `file`. Output goes into `folder`.
pub(crate) fn commands(file: &Path, folder: &Path) -> Vec<Command> {
    let out = |name: &str| Some(folder.join(name));
    let mut all: Vec<Command> = Vec::new();
    for way in questions(file, folder) {
        let run = move |progress: &SharedProgress| drop(question::run(&way, progress));
        all.push(("report", Box::new(run)));
    }
    let two = file.to_owned();
    all.push((
        "diff",
        Box::new(move |progress| {
            if let Ok(before) = File::open(&two, host(), progress)
                && let Ok(after) = before.other(&two)
            {
                let _ = before.diff(&after, true, true);
            }
        }),
    ));
    let (file_of_page, output) = (file.to_owned(), folder.join("page.html"));
    all.push((
        "page",
        Box::new(move |progress| {
            if let Ok(page) = page::read(&file_of_page, None, &Filter::default(), progress) {
                let _ = html::write(&page, &output);
            }
        }),
    ));
    let plotted = chart::ChartConfig {
        file: file.to_owned(),
        filter: host(),
        by: chart::PlotBy::Site,
        top: 3,
        smi: None,
    };
    let output = folder.join("plot.svg");
    all.push((
        "plot",
        Box::new(move |progress| {
            if let Ok(chart) = chart::read(&plotted, progress) {
                let _ = plot::write(&chart, &output, (400, 200));
            }
        }),
    ));
    for (format, name) in [
        (export::ExportFormat::Chrome, "trace.json"),
        (export::ExportFormat::Torch, "snapshot.pickle"),
        (export::ExportFormat::Tsv, "tables"),
    ] {
        let exported = export::ExportConfig {
            file: file.to_owned(),
            format,
            output: out(name),
            filter: Filter::default(),
        };
        all.push((
            name,
            Box::new(move |progress| drop(export::run(&exported, progress))),
        ));
    }
    let replayed = playback::ReplayConfig {
        file: file.to_owned(),
        top: Some(5),
        view: View::default(),
        per_call: true,
        only_last: false,
    };
    all.push((
        "replay",
        Box::new(move |progress| {
            let mut writer = ReportFormat::Text.writer(true);
            writer.lay_out(Layout {
                columns: Some(80),
                colored: true,
                full_names: false,
                verbose: false,
            });
            let _ = playback::replay(&replayed, &mut *writer, &mut io::sink(), progress);
        }),
    ));
    all
}
