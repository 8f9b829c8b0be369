//! `gpuprobe -- COMMAND`: the command is traced and otherwise behaves as if it were not.

use std::fs;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;

use crate::harness::child::{raw, state_of};
use crate::harness::gpuprobe::{BINARY, NOTHING};
use crate::harness::report::Totals;
use crate::harness::talk::Talk;
use crate::harness::{
    Backend, OwnCopy, Report, Setup, copy_program, require_bpf, said, standin, wait_for,
};

fn workload() -> String {
    standin().program_text(Backend::Shared)
}

/// The lines that a command without CUDA prints.
fn printed(setup: Setup) -> Vec<String> {
    let mut gpuprobe = setup.start();
    assert_eq!(gpuprobe.exit_code(), NOTHING);
    assert!(gpuprobe.final_report().is_final());
    gpuprobe.talk.to_end()
}

fn shell(script: &str) -> Setup {
    Setup::command_without_stacks(["sh", "-c", script])
}

#[test]
fn root_the_exit_status_is_the_commands_and_signals_are_passed_on() {
    for (how, signal, code) in [
        ("exit 0", None, 0),
        ("exit 7", None, 7),
        ("kill9", None, 128 + 9),
        ("abort", None, 128 + 6),
        ("", Some(Signal::SIGINT), 130),
        ("", Some(Signal::SIGTERM), 143),
        ("", Some(Signal::SIGHUP), 129),
    ] {
        let mut gpuprobe = Setup::command_without_stacks([workload()]).start();
        let pid = gpuprobe.talk.ready();
        gpuprobe.talk.say("alloc 4096 2");
        match signal {
            Some(signal) => gpuprobe.child.signal(signal),
            None => gpuprobe.talk.send(how),
        }
        assert_eq!(gpuprobe.exit_code(), code, "{how} {signal:?}");
        let report = gpuprobe.final_report();
        report.assert_totals(Totals {
            alloc_calls: 2,
            live_bytes: 8192,
            live_allocations: 2,
            ..Totals::default()
        });
        report.assert_holds(pid, 8192, 2);
        assert_eq!(report.process(pid)["exited"], true);
    }
}

#[test]
fn root_a_command_that_cannot_be_executed_is_one_line_error() {
    let folder = TempDir::new().unwrap();
    let no_program = folder.path().join("no-program");
    fs::write(&no_program, "not a program").unwrap();
    for (command, code) in [
        ("/nonexistent/program", 127),
        ("no-program-has-this-name", 127),
        (no_program.to_str().unwrap(), 126),
    ] {
        let mut gpuprobe = Setup::command_without_stacks([command]).spawn();
        assert_eq!(gpuprobe.exit_code(), code);
        let mut said = gpuprobe.said();
        said.retain(|line| !line.starts_with("gpuprobe: tracing"));
        assert_eq!(said.len(), 1, "{said:#?}");
        assert!(said[0].starts_with("gpuprobe: error: "), "{said:#?}");
        assert!(said[0].contains(command), "{said:#?}");
        assert!(gpuprobe.talk.to_end().is_empty());
    }
}

#[test]
fn root_waiting_for_cuda_and_attached_libraries_are_reported() {
    let told = |backend, script: &str, begins: &str, status| -> Vec<String> {
        // The name of a library that is already attached would not be printed again.
        let copy = OwnCopy::new();
        let program = copy.standin().program_text(backend);
        let script = script.replace("RUNTIME", &copy.standin().runtime());
        let mut gpuprobe = Setup::command_without_stacks([&*program, "-c", &script])
            .args(["-v"])
            .spawn();
        assert_eq!(gpuprobe.exit_code(), status);
        let said = gpuprobe.said();
        let first = format!("gpuprobe: tracing {program}: {begins}");
        assert!(said[0].starts_with(&first), "{said:#?}");
        said[1..].to_vec()
    };
    let waits = "waiting for CUDA";
    let said = told(Backend::Shared, "alloc 4096; exit", waits, 0);
    // Usually one line, but the second library may be loaded a while after the first.
    assert!((1..=2).contains(&said.len()), "{said:#?}");
    let last = said.last().unwrap();
    let attached = last.strip_prefix("gpuprobe: attached to ").unwrap();
    let (count, what) = attached.split_once(' ').unwrap();
    assert!(count.parse::<u32>().unwrap() > 100, "{attached}");
    assert_eq!(what, "functions in 2 CUDA libraries");
    let said = told(Backend::Dlopen, "load RUNTIME; alloc 4096; exit", waits, 0);
    let last = said.last().unwrap();
    assert!(last.ends_with("functions in 2 CUDA libraries"), "{said:#?}");
    // Without CUDA that is the only message.
    let said = told(Backend::Dlopen, "exit", waits, NOTHING);
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(
        said[0].ends_with("never loaded CUDA (libcuda, libcudart)"),
        "{said:#?}"
    );
}

#[test]
fn root_a_command_may_handle_the_signal() {
    let script = "trap 'echo caught; exit 5' TERM; echo ready $$; while :; do read line; done";
    let mut gpuprobe = Setup::command_without_stacks(["sh", "-c", script]).start();
    let pid = gpuprobe.talk.ready();
    gpuprobe.child.signal(Signal::SIGTERM);
    // A shell runs its trap after the current command has exited.
    gpuprobe.talk.send("");
    assert_eq!(gpuprobe.exit_code(), 5);
    assert_eq!(
        gpuprobe.talk.to_end(),
        [format!("ready {pid}"), "caught".to_owned()]
    );
}

#[test]
fn root_a_second_interrupt_leaves_a_command_that_ignores_the_first() {
    let script = "trap '' INT; echo ready $$; while read line; do :; done; echo ended";
    let mut gpuprobe = Setup::command_without_stacks(["sh", "-c", script]).start();
    gpuprobe.talk.ready();
    gpuprobe.child.signal(Signal::SIGINT);
    gpuprobe
        .stderr
        .line_with(&["waiting for the command to end; Ctrl-C again"]);
    gpuprobe.child.signal(Signal::SIGINT);
    assert_eq!(gpuprobe.exit_code(), NOTHING);
    // It runs until its input ends.
    gpuprobe.talk.send("go on");
    gpuprobe.talk.close();
    assert_eq!(gpuprobe.talk.to_end().last().unwrap(), "ended");
}

#[test]
fn root_input_may_be_closed() {
    let closed = ["sh", "-c", "exec \"$0\" \"$@\" <&-"];
    let script = format!("{} -c 'alloc 4096; exit' >&2", workload());
    let mut gpuprobe = Setup::command_without_stacks(["sh", "-c", &script])
        .wrapped(closed)
        .start();
    assert_eq!(gpuprobe.exit_code(), 0, "{:#?}", gpuprobe.said());
    gpuprobe.final_report().assert_totals(Totals {
        alloc_calls: 1,
        live_bytes: 4096,
        live_allocations: 1,
        ..Totals::default()
    });
}

#[test]
fn root_input_output_environment_and_folder_are_the_commands() {
    let script = "echo \"$GREETING\"; pwd; echo \"[$SUDO_UID]\"; exec cat";
    let folder = std::env::current_dir().unwrap();
    let mut gpuprobe = shell(script).env("GREETING", "good  day").start();
    let lines = ["one", "", "three  with blanks"];
    for line in lines {
        gpuprobe.talk.send(line);
    }
    gpuprobe.talk.close();
    assert_eq!(gpuprobe.exit_code(), NOTHING);
    let said = gpuprobe.talk.to_end();
    assert_eq!(said[..3], ["good  day", folder.to_str().unwrap(), "[]"]);
    assert_eq!(said[3..], lines);
}

#[test]
fn root_under_sudo_the_command_runs_as_the_calling_user() {
    let script = "id -u; id -g; id -G; grep -c '^CapEff:.0000000000000000$' /proc/self/status; \
                  echo $GREETING";
    let setup = shell(script)
        .env("SUDO_UID", "12345")
        .env("SUDO_GID", "23456")
        .env("GREETING", "hello");
    assert_eq!(printed(setup), ["12345", "23456", "23456", "1", "hello"]);
    // A user without a passwd entry gets the group of the same number.
    let setup = shell("id -u; id -g").env("PKEXEC_UID", "12345");
    assert_eq!(printed(setup), ["12345", "12345"]);
}

#[test]
fn root_under_sudo_the_command_gets_the_users_environment() {
    let entry = |name: &str| nix::unistd::User::from_name(name).unwrap().unwrap();
    let (root, nobody) = (entry("root"), entry("nobody"));
    for (option, user) in [(None, &nobody), (Some("--as-root"), &root)] {
        let setup = shell("echo $USER $LOGNAME $HOME $SHELL; echo $SUDO_USER; id -u")
            .env("USER", "root")
            .env("LOGNAME", "root")
            .env("HOME", root.dir.to_str().unwrap())
            .env("SHELL", root.shell.to_str().unwrap())
            .env("SUDO_USER", "nobody")
            .env("SUDO_UID", &nobody.uid.to_string())
            .env("SUDO_GID", &nobody.gid.to_string())
            .args(option);
        let (name, [home, shell]) = (&user.name, [&user.dir, &user.shell].map(|p| p.display()));
        let names = format!("{name} {name} {home} {shell}");
        assert_eq!(
            printed(setup),
            [names, "nobody".to_owned(), user.uid.to_string()]
        );
    }
}

#[test]
fn root_under_sudo_a_command_is_traced_from_its_first_call() {
    // It loads the libraries after setuid, and is held meanwhile.
    let copy = OwnCopy::for_everyone();
    let script = "alloc 4096 3; free 0; exit";
    let load = format!("load {}; {script}", copy.standin().runtime());
    for (backend, script) in [(Backend::Shared, script), (Backend::Dlopen, &*load)] {
        let program = copy.standin().program_text(backend);
        let mut gpuprobe = Setup::command_without_stacks([&*program, "-c", script])
            .env("SUDO_UID", "12345")
            .env("SUDO_GID", "23456")
            .start();
        assert_eq!(gpuprobe.exit_code(), 0);
        let report = gpuprobe.final_report();
        report.assert_nothing_lost();
        assert_eq!(report.totals().alloc_calls, 3, "{program}");
        assert_eq!(report.totals().live_allocations, 2, "{program}");
    }
}

#[test]
fn root_failure_of_gpuprobe_leaves_no_process_stopped() {
    // New programs one after the other, each held at exec and at the mapping of a library. The
    // first report fails.
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("input");
    let load = format!("load {}", standin().runtime());
    fs::write(&input, format!("{load}\nalloc 512\nexit 3\n")).unwrap();
    let mut number = 0;
    let mut run_another = |parent: &mut Talk| {
        let program = folder.path().join(format!("program-{number}"));
        number += 1;
        copy_program(standin().program(Backend::Dlopen), &program);
        let line = format!("run {} {}", program.display(), input.display());
        let reply = parent.say(&line);
        // A process that stays stopped would not be reaped.
        assert_eq!(said(&reply, "status"), "3", "{reply}");
        said(&reply, "stopped") == "1"
    };
    let mut gpuprobe = Setup::command_without_stacks([crate::stopped::parent()])
        .on_stdout()
        .args(["-o", "/dev/full"])
        .interval("500ms")
        .start();
    gpuprobe.talk.ready();
    let mut held = 0;
    while gpuprobe.child.streams().try_wait().unwrap().is_none() {
        held += u32::from(run_another(&mut gpuprobe.talk));
    }
    assert_eq!(gpuprobe.exit_code(), 1);
    assert!(held > 0, "none was held");
    // The command goes on, and its children are not held.
    for _ in 0..5 {
        assert!(!run_another(&mut gpuprobe.talk));
    }
    gpuprobe.talk.close();
    let said = gpuprobe.said();
    assert!(said[0].starts_with("gpuprobe: tracing "), "{said:#?}");
    let (attached, rest): (Vec<_>, Vec<_>) = said[1..]
        .iter()
        .partition(|line| line.starts_with("gpuprobe: attached"));
    assert!(!attached.is_empty() && rest.len() == 1, "{said:#?}");
    let ours = "gpuprobe: error: cannot write the report";
    assert!(rest[0].starts_with(ours), "{said:#?}");
}

#[test]
fn root_a_time_limit_ends_tracing_and_not_the_command() {
    let mut gpuprobe = Setup::command_without_stacks([workload()])
        .args(["--duration", "1ms"])
        .start();
    gpuprobe.talk.ready();
    gpuprobe.report_where("the last report", Report::is_final);
    gpuprobe.talk.say("alloc 4096");
    gpuprobe.talk.send("exit 4");
    assert_eq!(gpuprobe.exit_code(), 4);
    assert_eq!(gpuprobe.final_report().totals(), Totals::default());
}

#[test]
fn root_a_command_killed_while_it_is_held_ends_the_run() {
    let mut gpuprobe =
        Setup::command_without_stacks([standin().program_text(Backend::Dlopen)]).start();
    let pid = gpuprobe.talk.ready();
    gpuprobe.child.signal(Signal::SIGSTOP);
    gpuprobe.talk.send(&format!("load {}", standin().runtime()));
    wait_for("the command to be held", || {
        (state_of(pid) == Some('T')).then_some(())
    });
    kill(raw(pid), Signal::SIGKILL).unwrap();
    gpuprobe.child.signal(Signal::SIGCONT);
    assert_eq!(gpuprobe.exit_code(), 128 + 9);
    gpuprobe.final_report().assert_totals(Totals::default());
}

/// The stand-in NVML is loaded before the command is started and leaves a file descriptor open that
/// would be inherited; real ones may, too.
#[test]
fn root_command_inherits_its_descriptors_and_none_of_gpuprobe() {
    require_bpf();
    let folder = TempDir::new().unwrap();
    // The test runner may have leaked descriptors, too.
    let inherited = |through: &[&str], status| {
        let output = Command::new("sh")
            .args(["-c", "exec 7</dev/null; exec \"$@\"", "sh"])
            .args(through)
            .args(["sh", "-c", "ls /proc/$$/fd; readlink /proc/$$/fd/7"])
            .env("LD_LIBRARY_PATH", standin().path(""))
            .env_remove("SUDO_UID")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{said}");
        String::from_utf8(output.stdout).unwrap()
    };
    let without = inherited(&[], 0);
    assert!(
        without.contains("\n7\n") && without.ends_with("/dev/null\n"),
        "{without}"
    );
    let recording = folder.path().join("run.sqlite");
    let record = [BINARY, "record", "--smi-interval", "10ms", "-o"];
    let record = [&record[..], &[recording.to_str().unwrap(), "--"]].concat();
    let with = inherited(&record, NOTHING);
    assert_eq!(with, without);
}
