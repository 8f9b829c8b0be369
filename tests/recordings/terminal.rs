//! Text on a terminal: colours and widths, which files and pipes do not have.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use nix::pty::{Winsize, openpty};

use crate::{Folder, python, scene};

/// The escape sequences that reports may have: the end of a colour, bold, dim, red, green, yellow.
const COLORS: [&str; 6] = [
    "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m",
];

const REPORT: &[&str] = &["report", "python.sqlite", "--analysis", "leakage"];

fn scenes() -> Folder {
    let folder = Folder::new();
    scene::training(&folder.path("training.sqlite"));
    python::scene::record(&folder.path("python.sqlite"));
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

/// Standard output of `command` on a terminal of so many columns.
fn on_terminal(mut command: Command, columns: u16) -> String {
    let size = Winsize {
        ws_row: 40,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = openpty(&size, None).unwrap();
    let mut child = command
        .stdout(Stdio::from(pty.slave))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The last copy of the terminal is then the child's.
    drop(command);
    let mut terminal = File::from(pty.master);
    let (mut written, mut buffer) = (Vec::new(), [0; 4096]);
    // A terminal that its last user has closed is an error to read.
    while let Ok(count @ 1..) = terminal.read(&mut buffer) {
        written.extend_from_slice(&buffer[..count]);
    }
    assert!(child.wait().unwrap().success());
    String::from_utf8(written).unwrap().replace("\r\n", "\n")
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
        &["report", "training.sqlite"],
        &["replay", "python.sqlite"],
        &["explain", "training.sqlite"],
    ] {
        for (columns, width) in [(40, 80), (80, 80), (120, 120), (240, 240), (500, 240)] {
            let shown = on_terminal(command(&folder, arguments), columns);
            assert!(has_colors(&shown), "{arguments:?}: {shown}");
            let mut same = command(&folder, arguments);
            same.env("COLUMNS", width.to_string());
            assert_eq!(uncolored(&shown), piped(same), "{arguments:?} at {columns}");
            for line in uncolored(&shown).lines() {
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
        on_terminal(command, 80)
    };
    for shown in [
        in_environment("NO_COLOR", "1"),
        in_environment("TERM", "dumb"),
        on_terminal(with(&["--color", "never"]), 80),
        on_terminal(with(&["--format", "json"]), 80),
        on_terminal(with(&["--format", "csv", "--color", "always"]), 80),
    ] {
        assert!(!has_colors(&shown), "{shown}");
    }
    for shown in [
        in_environment("NO_COLOR", ""),
        on_terminal(with(&["--color", "auto"]), 80),
    ] {
        assert!(has_colors(&shown), "{shown}");
    }
    // A pipe has colours where these are asked for, and lines of any length.
    let always = piped(with(&["--color", "always"]));
    assert!(has_colors(&always), "{always}");
    assert_eq!(uncolored(&always), plain);
    on_terminal(with(&["-o", "report.txt"]), 80);
    assert_eq!(
        std::fs::read_to_string(folder.path("report.txt")).unwrap(),
        plain
    );
}

#[test]
fn names_send_no_escape_sequences_among_colours() {
    let folder = scenes();
    let arguments = &[
        "replay",
        "python.sqlite",
        "--color",
        "always",
        "--stacks-shown",
    ];
    for shown in [
        on_terminal(command(&folder, arguments), 240),
        piped(command(&folder, arguments)),
    ] {
        assert!(has_colors(&shown));
        let rest = uncolored(&shown);
        assert!(rest.contains("\\nname"), "a hostile name is shown: {rest}");
        assert!(!rest.contains('\x1b'), "{rest:?}");
    }
}
