//! `--on-oom`: the hook runs once per incident, asynchronously, and without a shell.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;
use tempfile::TempDir;

use super::{counts, incidents};
use crate::harness::Backend::Shared;
use crate::harness::child::{children_of, state_of};
use crate::harness::{Gpuprobe, OwnCopy, Setup, wait_for};
use crate::validator::check_all;

/// A script with one incident.
const REFUSED: &str = "fail cudaMalloc 1 2; alloc 4096";

/// Output folder of a hook.
struct HookFolder {
    folder: TempDir,
}

impl HookFolder {
    /// An output folder that every user may write to.
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A hook that runs `script` in the folder, with the process and the file as its arguments.
    fn hook(&self, script: &str) -> String {
        let folder = self.folder.path().display();
        format!("sh -c 'cd \"$0\"; {script}' {folder} {{pid}} {{file}}")
    }

    /// Waits until a file has this many lines.
    fn wait(&self, name: &str, lines: usize) {
        wait_for(name, || (self.lines(name).len() == lines).then_some(()));
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// Hooks that are running.
fn zombies(gpuprobe: &Gpuprobe) -> Vec<u32> {
    let children = children_of(gpuprobe.child.pid()).into_iter();
    children.filter(|pid| state_of(*pid) == Some('Z')).collect()
}

/// The incident documents passed to hooks, as they copied them.
fn told(place: &HookFolder, pids: &[String]) -> Vec<Value> {
    let one = |number: usize| {
        let text = fs::read_to_string(place.path(&format!("told-{number}"))).unwrap();
        check_all(&text);
        serde_json::from_str::<Value>(&text).unwrap()["incident"].clone()
    };
    (1..=pids.len()).map(one).collect()
}

#[test]
fn root_hook_runs_once_for_each_incident_without_a_successful_retry() {
    let place = HookFolder::new();
    let hook = place.hook(
        "echo $1 >> pids; cat \"$2\" > told-$(wc -l < pids); echo $2 >> files; stat -c %a \"$2\" >> modes",
    );
    let mut run = Setup::workload(Shared).args(["--on-oom", &hook]).run(
        "fail cudaMalloc 1 2; alloc 4096; alloc 4096; fail cudaMalloc 1 2; alloc 8192; alloc 1; \
         fail cudaMallocManaged 2 2; managed 100; managed 100",
    );
    let report = run.report();
    assert_eq!(counts(&report), [4, 3]);
    let (pids, pid) = (place.lines("pids"), run.pid.to_string());
    assert_eq!(pids, [pid.clone(), pid]);
    let told = told(&place, &pids);
    let [_, second, third] = incidents(&report) else {
        panic!("three incidents");
    };
    assert_eq!(told[0], *second);
    for key in ["id", "asked_bytes", "attempts", "sites", "stack", "label"] {
        assert_eq!(told[1][key], third[key], "{key}");
    }
    // Other users could not read the files, and they have been removed.
    assert_eq!(place.lines("modes"), ["600", "600"]);
    for file in place.lines("files") {
        assert!(!Path::new(&file).exists(), "{file}");
    }
}

#[test]
fn root_hanging_hook_delays_no_report() {
    let place = HookFolder::new();
    let gate = place.path("gate");
    mkfifo(&gate, Mode::from_bits_truncate(0o666)).unwrap();
    let hook = place.hook("echo $1 >> begun; cat gate > /dev/null; echo $1 >> done");
    let setup = Setup::workload(Shared).interval("100ms");
    let (mut gpuprobe, pid) = setup.args(["--on-oom", &hook]).started();
    gpuprobe
        .talk
        .play("fail cudaMalloc 1 2; alloc 4096; alloc 1");
    place.wait("begun", 1);
    // The next hook waits for this one, and reports go on.
    gpuprobe
        .talk
        .play("fail cudaMalloc 1 2; alloc 8192; alloc 1; alloc 1048576 5");
    gpuprobe.report_where("a report of what came then", |report| {
        let held = report.entries(pid);
        held.first()
            .is_some_and(|process| process["live_bytes"] == 5 * 1_048_576 + 2)
    });
    assert_eq!(place.lines("begun").len(), 1);
    assert!(place.lines("done").is_empty());
    // Each waits until the gate is opened for it.
    let open = || drop(fs::OpenOptions::new().write(true).open(&gate).unwrap());
    open();
    place.wait("begun", 2);
    assert_eq!(place.lines("done").len(), 1);
    assert!(zombies(&gpuprobe).is_empty());
    open();
    place.wait("done", 2);
    wait_for("nobody to be left", || {
        zombies(&gpuprobe).is_empty().then_some(())
    });
    gpuprobe.talk.done();
    gpuprobe.final_report();
    assert_eq!(place.lines("done"), [pid.to_string(), pid.to_string()]);
}

#[test]
fn root_failing_hook_is_reported_and_changes_nothing() {
    for (hook, expected) in [
        ("false", "false ended with exit status: 1"),
        ("/no/such/program {pid}", "cannot start /no/such/program"),
    ] {
        let mut run = Setup::workload(Shared)
            .args(["--on-oom", hook])
            .run(REFUSED);
        assert_eq!(run.gpuprobe.exit_code(), 0);
        let said = run.gpuprobe.said();
        let line = said.iter().find(|line| line.contains("--on-oom"));
        let line = line.unwrap_or_else(|| panic!("{said:#?}"));
        assert!(
            line.contains("incident #1") && line.contains(expected),
            "{line}"
        );
    }
}

#[test]
fn root_a_hook_runs_as_the_user_who_called_sudo() {
    for (as_root, uid) in [(false, "65534"), (true, "0")] {
        let place = HookFolder::new();
        let hook = place.hook("id -u >> ids; wc -l < \"$2\" >> ids");
        let copy = OwnCopy::for_everyone();
        let program = copy.standin().program_text(Shared);
        let setup = Setup::command([program]).args(["--on-oom", &hook]);
        let setup = setup.env("SUDO_UID", "65534").env("SUDO_GID", "65534");
        let mut run = setup.args(as_root.then_some("--as-root")).run(REFUSED);
        assert_eq!(place.lines("ids"), [uid, "1"], "{:#?}", run.gpuprobe.said());
    }
}

#[test]
fn root_hook_arguments_are_not_parsed_by_a_shell() {
    let place = HookFolder::new();
    let witness = place.path("witness");
    let folder = place.path("a b; touch $(echo witness)");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let copy = place.path("copy");
    let hook = format!("cp {{file}} {} ", copy.display());
    let setup = Setup::workload(Shared).args(["--on-oom", &hook]);
    // The file is part of the word, which stays one argument.
    let setup = setup.env("TMPDIR", folder.to_str().unwrap());
    setup.run(REFUSED).report();
    assert!(!witness.exists());
    check_all(&fs::read_to_string(&copy).unwrap());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}
