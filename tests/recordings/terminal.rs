//! Text on a terminal: colours and widths, which files and pipes do not have.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use nix::pty::{Winsize, openpty};

use crate::Folder;

/// The escape sequences that reports may have: the end of a colour, bold, dim, red, green, yellow.
const COLORS: [&str; 6] = [
    "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m",
];

const REPORT: &[&str] = &["report", "python.sqlite", "--analysis", "leakage"];

fn scenes() -> Folder {
    let folder = Folder::new();
    folder.scene("training");
    folder.scene("python");
    folder
}

fn command(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuprobe"));
    command
        .args(arguments)
        .current_dir(folder.path(""))
        .env_remove("COLUMNS")
        .env_remove("NO_COLOR")
        .env_remove("GPUPROBE_LOG")
        .env("TERM", "xterm");
    command
}

/// Standard output of `command` on a terminal of so many columns, and standard error too if that is to be there.
pub(crate) fn on_terminal(mut command: Command, columns: u16, with_errors: bool) -> String {
    let size = Winsize {
        ws_row: 40,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = openpty(&size, None).unwrap();
    command.stdin(Stdio::null()).stderr(Stdio::null());
    if with_errors {
        command.stderr(pty.slave.try_clone().unwrap());
    }
    let mut child = command.stdout(pty.slave).spawn().unwrap();
    // The last copy of the terminal is then the child's.
    drop(command);
    let mut written = Vec::new();
    // A terminal that its last user has closed is an error to read.
    let _closed = File::from(pty.master).read_to_end(&mut written);
    assert!(child.wait().unwrap().success());
    String::from_utf8(written).unwrap().replace("\r\n", "\n")
}

fn shown(command: Command, columns: u16) -> String {
    on_terminal(command, columns, false)
}

fn piped(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

fn uncolored(text: &str) -> String {
    let text = text.to_owned();
    COLORS
        .iter()
        .fold(text, |text, color| text.replace(color, ""))
}

fn has_colors(text: &str) -> bool {
    COLORS.iter().any(|color| text.contains(color))
}

#[test]
fn lines_on_a_terminal_have_colours_and_its_width() {
    let folder = scenes();
    for arguments in [
        REPORT,
        &["replay", "python.sqlite"],
        &["explain", "training.sqlite"],
    ] {
        for (columns, width) in [(40, 80), (120, 120), (500, 240)] {
            let text = shown(command(&folder, arguments), columns);
            assert!(has_colors(&text), "{arguments:?}: {text}");
            let mut same = command(&folder, arguments);
            same.env("COLUMNS", width.to_string());
            assert_eq!(uncolored(&text), piped(same), "{arguments:?} at {columns}");
            for line in uncolored(&text).lines() {
                assert!(line.chars().count() <= width, "{columns}: {line}");
            }
        }
    }
}

#[test]
fn colours_are_for_terminals_unless_asked_for() {
    let folder = scenes();
    let plain = piped(command(&folder, REPORT));
    assert!(!has_colors(&plain), "{plain}");
    let with = |options: &[&str]| command(&folder, &[REPORT, options].concat());
    let in_environment = |name: &str, value: &str| {
        let mut command = command(&folder, REPORT);
        command.env(name, value);
        shown(command, 80)
    };
    for text in [
        in_environment("NO_COLOR", "1"),
        in_environment("TERM", "dumb"),
        shown(with(&["--color", "never"]), 80),
        shown(with(&["--format", "json"]), 80),
        shown(with(&["--format", "csv", "--color", "always"]), 80),
    ] {
        assert!(!has_colors(&text), "{text}");
    }
    for text in [
        in_environment("NO_COLOR", ""),
        shown(with(&["--color", "auto"]), 80),
    ] {
        assert!(has_colors(&text), "{text}");
    }
    // A pipe has colours where these are asked for, and lines of any length.
    let always = piped(with(&["--color", "always"]));
    assert!(has_colors(&always), "{always}");
    assert_eq!(uncolored(&always), plain);
    shown(with(&["-o", "report.txt"]), 80);
    assert_eq!(
        std::fs::read_to_string(folder.path("report.txt")).unwrap(),
        plain
    );
}

#[test]
fn names_send_no_escape_sequences_among_colours() {
    let folder = scenes();
    let arguments = ["replay", "python.sqlite", "--stacks-shown"];
    let arguments = &[&arguments[..], &["--color", "always"]].concat();
    for text in [
        shown(command(&folder, arguments), 240),
        piped(command(&folder, arguments)),
    ] {
        assert!(has_colors(&text));
        let rest = uncolored(&text);
        assert!(rest.contains("\\nname"), "a hostile name is shown: {rest}");
        assert!(!rest.contains('\x1b'), "{rest:?}");
    }
}
