//! The command line: what was typed, turned once into what it means.

mod documents;
mod explain;
mod file;
mod messages;
mod options;
mod progress;
mod recorded;
mod removed;
mod status;
mod top;
#[cfg_attr(not(feature = "live"), path = "cli/no_trace.rs")]
mod trace;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command, CommandFactory, FromArgMatches, Id, Parser, Subcommand};

use gpuprobe_analysis::NoMatch;
use gpuprobe_os::say;
use gpuprobe_views::export::ExportConfig;
use gpuprobe_views::report::ReportConfig;
use gpuprobe_views::to_output;

/// Shows who holds GPU memory in running CUDA programs, and where it leaks.
///
#[cfg_attr(
    feature = "live",
    doc = "`gpuprobe PID` explains what a running process holds, `gpuprobe FILE.sqlite` reports a recording. \
           Programs need no restart. Without --pid and COMMAND, every CUDA process on this host is traced, those \
           that start later too. Reports go to standard output, with COMMAND to standard error."
)]
#[cfg_attr(
    not(feature = "live"),
    doc = "This build has no live tracing: it reads recordings and Nsight Systems exports."
)]
#[derive(Debug, Parser)]
#[command(
    name = "gpuprobe",
    version,
    args_conflicts_with_subcommands = true,
    after_long_help = status::help()
)]
struct Cli {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    trace: trace::TraceArgs,
}

/// The exit status where nothing in a file is as asked.
const NOTHING: u8 = 3;

#[derive(Debug, Subcommand)]
enum Action {
    #[cfg(feature = "live")]
    #[command(flatten)]
    Live(trace::TraceCommandAction),
    /// Say whether memory leaks, and who holds it.
    ///
    /// Of running processes, or in a recording.
    Explain(Box<explain::ExplainArgs>),
    /// Analyse a recording or an Nsight Systems export.
    Report(Box<ReportConfig>),
    /// Draw memory over time.
    Plot(recorded::PlotArgs),
    /// Convert a recording for Perfetto or PyTorch, or into tables.
    Export(ExportConfig),
    /// Watch processes and their memory on the terminal.
    ///
    /// The same as gpuprobe alone on a terminal. Or plays a recording. Press ? for help.
    Top(Box<top::TopArgs>),
    /// Write the reports of a recorded run again.
    #[command(hide = true)]
    Replay(recorded::ReplayArgs),
    /// Print the completion script of a shell.
    Completions(documents::CompletionArgs),
    /// Write the man pages into a folder, for packages.
    #[command(hide = true)]
    Man(documents::ManArgs),
}

/// Runs the command line; the exit status is the program's.
pub fn main() -> ExitCode {
    if let Some(status) = trace::run_as_helper() {
        return status;
    }
    messages::begin_log();
    trace::log_libbpf();
    let words: Vec<_> = std::env::args_os().collect();
    #[cfg(feature = "live")]
    let words = match words.len() {
        1 if top::is_possible() => [words, vec!["top".into()]].concat(),
        _ => words,
    };
    let words = spelled_out(words);
    let matches = command(lists_all(&words)).try_get_matches_from(&words);
    let matches = matches.unwrap_or_else(|error| explain(error, &words).exit());
    options::check(&matches);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let result = match cli.action {
        #[cfg(feature = "live")]
        Some(Action::Live(action)) => action.run(),
        Some(Action::Explain(arguments)) => arguments.run(),
        Some(Action::Report(config)) => recorded::report(*config),
        Some(Action::Plot(arguments)) => arguments.run(),
        Some(Action::Export(config)) => recorded::export(config),
        Some(Action::Top(arguments)) => arguments.run(),
        Some(Action::Replay(arguments)) => arguments.run(),
        Some(Action::Completions(arguments)) => print(&arguments.script()),
        Some(Action::Man(arguments)) => arguments.run(),
        None => cli.trace.run(),
    };
    result.unwrap_or_else(|error| {
        say(format_args!("error: {error:#}"));
        match error.is::<NoMatch>() {
            true => ExitCode::from(NOTHING),
            false => ExitCode::FAILURE,
        }
    })
}

/// Says what is wrong with the command line, and exits.
fn wrong(kind: ErrorKind, message: &str) -> ! {
    Cli::command().error(kind, message).exit()
}

/// `gpuprobe PID` and `gpuprobe FILE.sqlite` with the words that were left out.
fn spelled_out(mut words: Vec<OsString>) -> Vec<OsString> {
    let is_pids = |text: &str| text.split(',').all(|word| word.parse::<u32>().is_ok());
    let inserted: &[&str] = match words.get(1).and_then(|word| word.to_str()) {
        Some(text) if is_pids(text) && is_traced(&words) => &["--pid"],
        Some(text) if is_pids(text) => &["explain", "--pid"],
        Some(text) if text.ends_with(".sqlite") => &["report"],
        _ => &[],
    };
    words.splice(1..1, inserted.iter().map(OsString::from));
    words
}

/// `error`, or what there is to say of an option that was removed, or of a first word that is no subcommand.
fn explain(error: clap::Error, words: &[OsString]) -> clap::Error {
    let first = words
        .get(1)
        .filter(|word| !word.as_encoded_bytes().starts_with(b"-"));
    let is_wrong = error.kind() == ErrorKind::UnknownArgument && first.is_some();
    // Where there is COMMAND, clap takes a mistyped subcommand for an argument.
    let usage = "gpuprobe [OPTIONS] [-- <COMMAND>...]\n       gpuprobe <COMMAND>";
    let command = Command::new("gpuprobe").override_usage(usage);
    let command = command.subcommands(Cli::command().get_subcommands().cloned());
    let of_word = is_wrong.then(|| command.try_get_matches_from(words).err());
    removed::explain(of_word.flatten().unwrap_or(error))
}

/// Whether a mode is asked for.
fn is_traced(words: &[OsString]) -> bool {
    let modes = ["--memleak", "--cudatrace", "--bandwidth-util"];
    options_in(words).any(|word| modes.into_iter().any(|mode| word == mode))
}

/// Whether the help that is asked for, if any, lists every option.
fn lists_all(words: &[OsString]) -> bool {
    options_in(words).any(|word| word == "--help")
}

fn options_in(words: &[OsString]) -> impl Iterator<Item = &OsString> {
    words.iter().take_while(|word| *word != "--")
}

/// Options of tracing that most users need. `-h` has these, and what a subcommand alone has.
const MOST_USED: &[&str] = &[
    "memleak",
    "cudatrace",
    "bandwidth_util",
    "activity",
    "pid",
    "all",
    "duration",
    "command",
    "format",
    "output",
    "record",
];

/// The command line's description; its help has every option if it `lists_all`, else those that most users need.
fn command(lists_all: bool) -> Command {
    let command = Cli::command();
    let options = command.get_arguments().map(Arg::get_id);
    let rare = options.filter(|id| !lists_all && !MOST_USED.contains(&id.as_str()));
    let rare: Vec<_> = rare.cloned().collect();
    with_help(command, &rare, lists_all)
}

fn with_help(command: Command, rare: &[Id], lists_all: bool) -> Command {
    let help = Arg::new("help").short('h').long("help");
    let help = help.action(ArgAction::HelpShort);
    let details = Arg::new("help_all").long("help-all");
    let details = details
        .action(ArgAction::HelpLong)
        .help("Explain every option");
    command
        .mut_args(|arg| match rare.contains(arg.get_id()) {
            true => arg.hide_short_help(true),
            false => arg,
        })
        .disable_help_flag(true)
        .next_help_heading(None)
        .arg(help.help("Print help; --help lists every option"))
        .arg(details.hide_short_help(!lists_all))
        .mut_subcommands(|inner| with_help(inner, rare, lists_all))
}

/// Writes to standard output; whoever closes it has seen enough.
fn print(document: &[u8]) -> anyhow::Result<ExitCode> {
    to_output(None, false, |out| Ok(out.write_all(document)?))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command(false).debug_assert();
        command(true).debug_assert();
    }

    #[test]
    fn a_process_or_a_file_is_enough() {
        for (typed, meant) in [
            ("7", "explain --pid 7"),
            ("7,8 -d 5s", "explain --pid 7,8 -d 5s"),
            ("7 --cudatrace", "--pid 7 --cudatrace"),
            ("run.sqlite --top 3", "report run.sqlite --top 3"),
            ("--pid 7", "--pid 7"),
            ("-- 7 --memleak", "-- 7 --memleak"),
            ("report 7", "report 7"),
        ] {
            let words = |line: &str| -> Vec<OsString> {
                let line = format!("gpuprobe {line}");
                line.split(' ').map(OsString::from).collect()
            };
            assert_eq!(spelled_out(words(typed)), words(meant), "{typed}");
            if cfg!(feature = "live") {
                assert!(command(false).try_get_matches_from(words(meant)).is_ok());
            }
        }
    }

    #[test]
    fn a_mistyped_subcommand_is_named() {
        for (typed, wanted) in [
            ("reprot f", "'report'"),
            ("report a b c", "unexpected argument 'b'"),
            ("report f --scroll", "--color always"),
            ("--memlaek", "'--memleak'"),
        ] {
            let line = format!("gpuprobe {typed}");
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            let error = command(false).try_get_matches_from(&words);
            let said = error.map_or_else(
                |error| explain(error, &words).to_string(),
                |_| String::new(),
            );
            let is_said = said.contains(wanted) || cfg!(not(feature = "live"));
            assert!(is_said, "{typed}: {said}");
        }
    }
}
