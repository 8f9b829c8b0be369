//! gpuprobe on a terminal of tmux, which shows what a user sees.

use std::process::{Command, Output};

use tempfile::TempDir;

use crate::harness::gpuprobe::BINARY;
use crate::harness::{require_bpf, wait_for, wait_until};

/// A terminal with gpuprobe in it; its shell prints the exit status.
pub(super) struct Screen {
    folder: TempDir,
}

impl Screen {
    /// Runs `gpuprobe top` with these arguments on a terminal of this size.
    pub(super) fn start((columns, rows): (u16, u16), arguments: &[&str]) -> Self {
        require_bpf();
        let screen = Self {
            folder: TempDir::new().unwrap(),
        };
        let quoted = |word: &&str| format!("'{word}'");
        let words: Vec<_> = arguments.iter().map(quoted).collect();
        let line = format!(
            "cd {}; {BINARY} {}; echo status $?; exec cat",
            screen.folder.path().display(),
            words.join(" ")
        );
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let size = ["-x", &columns, "-y", &rows];
        let options = [
            &["-f", "/dev/null", "new-session", "-d"],
            &size[..],
            &["sh", "-c", &line],
        ];
        screen.tmux(&options.concat());
        screen
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut tmux = Command::new("tmux");
        tmux.arg("-S").arg(self.folder.path().join("socket"));
        let tmux = tmux
            .args(arguments)
            .env("TERM", "xterm-256color")
            .env_remove("TMUX");
        tmux.output().expect("tmux can be run: install tmux")
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tmux {arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The lines on the terminal.
    pub(super) fn lines(&self) -> Vec<String> {
        let shown = self.tmux(&["capture-pane", "-p"]);
        shown
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect()
    }

    /// Types keys, by the names that tmux has for them.
    pub(super) fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Waits until the lines on the terminal are as wanted.
    pub(super) fn wait<T>(&self, what: &str, wanted: impl Fn(&[String]) -> Option<T>) -> T {
        let lines = wait_until(what, || self.lines(), |lines| wanted(lines).is_some());
        wanted(&lines).unwrap()
    }

    /// Waits for a line that contains all of these; returns it.
    pub(super) fn line(&self, parts: &[&str]) -> String {
        self.wait(&format!("{parts:?}"), |lines| {
            let has = |line: &&String| parts.iter().all(|part| line.contains(part));
            lines.iter().find(has).cloned()
        })
    }

    /// A variable of tmux about the terminal.
    pub(super) fn format(&self, variable: &str) -> String {
        let text = self.tmux(&["display-message", "-p", variable]);
        text.trim().to_owned()
    }

    /// Process id of gpuprobe.
    pub(super) fn pid(&self) -> u32 {
        let shell = self.format("#{pane_pid}").parse().unwrap();
        wait_for("gpuprobe", || {
            crate::harness::child::children_of(shell).first().copied()
        })
    }

    /// A file in the folder in which gpuprobe runs.
    pub(super) fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Closes the terminal.
    pub(super) fn close(&self) {
        self.run(&["kill-server"]);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.close();
    }
}
