//! `--on-oom`: the hook runs once per incident, asynchronously, and without a shell.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;
use tempfile::TempDir;

use super::{counts, incidents, started, workload};
use crate::harness::Backend::Shared;
use crate::harness::child::{children_of, state_of};
use crate::harness::{Gpuprobe, wait_for};
use crate::validator::check_all;

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
    let (mut gpuprobe, pid) = started(workload(Shared).args(["--on-oom", &hook]));
    gpuprobe.talk.play(
        "fail cudaMalloc 1 2; alloc 4096; alloc 4096; fail cudaMalloc 1 2; alloc 8192; alloc 1; \
         fail cudaMallocManaged 2 2; managed 100; managed 100",
    );
    gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    assert_eq!(counts(&report), [4, 3]);
    let pids = place.lines("pids");
    assert_eq!(pids, [pid.to_string(), pid.to_string()]);
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
    let setup = workload(Shared).interval("100ms");
    let (mut gpuprobe, pid) = started(setup.args(["--on-oom", &hook]));
    gpuprobe
        .talk
        .play("fail cudaMalloc 1 2; alloc 4096; alloc 1");
    wait_for("the hook", || {
        (place.lines("begun").len() == 1).then_some(())
    });
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
    wait_for("the second hook", || {
        (place.lines("begun").len() == 2).then_some(())
    });
    assert_eq!(place.lines("done").len(), 1);
    assert!(zombies(&gpuprobe).is_empty());
    open();
    wait_for("its end", || (place.lines("done").len() == 2).then_some(()));
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
        let (mut gpuprobe, _) = started(workload(Shared).args(["--on-oom", hook]));
        gpuprobe.talk.play("fail cudaMalloc 1 2; alloc 4096");
        gpuprobe.talk.done();
        assert_eq!(gpuprobe.exit_code(), 0);
        let said = gpuprobe.said();
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
        let copy = crate::harness::OwnCopy::for_everyone();
        let program = copy.standin().program_text(Shared);
        let setup = crate::harness::Setup::command([program]);
        let setup = setup.env("SUDO_UID", "65534").env("SUDO_GID", "65534");
        let setup = setup.args(["--on-oom", &hook]);
        let setup = if as_root {
            setup.args(["--as-root"])
        } else {
            setup
        };
        let (mut gpuprobe, _) = started(setup);
        gpuprobe.talk.play("fail cudaMalloc 1 2; alloc 4096");
        gpuprobe.talk.done();
        gpuprobe.wait();
        assert_eq!(place.lines("ids"), [uid, "1"], "{:#?}", gpuprobe.said());
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
    let setup = workload(Shared).args(["--on-oom", &hook]);
    // The file is part of the word, which stays one argument.
    let setup = setup.env("TMPDIR", folder.to_str().unwrap());
    let (mut gpuprobe, _) = started(setup);
    gpuprobe.talk.play("fail cudaMalloc 1 2; alloc 4096");
    gpuprobe.talk.done();
    gpuprobe.final_report();
    assert!(!witness.exists());
    check_all(&fs::read_to_string(&copy).unwrap());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}
