//! Launches of several processes, and of several programs in one process.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tempfile::TempDir;

use super::{LAUNCHES, graphs, name};
use crate::harness::report::number;
use crate::harness::{Backend, Report, Root, Session, Setup, Workload, host_wide, said, standin};

/// A workload without address space randomisation: its addresses are the same in every run.
fn at_fixed_addresses() -> Workload {
    let program = standin().program(Backend::Driver);
    Workload::spawn(Command::new("setarch").arg("-R").arg(program))
}

#[test]
fn root_equal_handles_of_two_processes_do_not_mix() {
    let _shared = host_wide();
    let mut workloads = [at_fixed_addresses(), at_fixed_addresses()];
    let mut gpuprobe = Setup::everything().modes(LAUNCHES).start();
    let mut handles = Vec::new();
    for (workload, kernel) in workloads.iter_mut().zip(["_Z5firstPf", "_Z6secondPf"]) {
        workload.say(&format!("module {kernel}"));
        let reply = workload.say(&format!("launch {kernel} {}", kernel.len()));
        handles.push(said(&reply, "handle").to_owned());
        workload.say("unload 0");
    }
    assert_eq!(handles[0], handles[1], "the test needs equal handles");
    let report = gpuprobe.stop();
    let [first, second] = &workloads;
    report.assert_nothing_lost_of([first.pid, second.pid]);
    assert_eq!(report.launched(first.pid), [("first(float*)", 10)]);
    assert_eq!(report.launched(second.pid), [("second(float*)", 11)]);
}

/// An overlay mount over an image, as a container has it.
struct Overlay {
    folder: TempDir,
}

impl Overlay {
    fn over(root: &Root) -> Self {
        let folder = TempDir::new_in(standin().path("..")).unwrap();
        let of = |name: &str| folder.path().join(name);
        for name in ["upper", "work", "merged"] {
            fs::create_dir(of(name)).unwrap();
        }
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            root.path("").display(),
            of("upper").display(),
            of("work").display()
        );
        let (kind, flags) = (Some("overlay"), MsFlags::empty());
        mount(kind, &of("merged"), kind, flags, Some(options.as_str())).expect("an overlay");
        Self { folder }
    }

    fn merged(&self) -> PathBuf {
        self.folder.path().join("merged")
    }

    fn start(&self) -> Workload {
        let mut command = Command::new("chroot");
        command.env("LD_LIBRARY_PATH", "/").arg(self.merged());
        Workload::spawn(command.arg(format!("/{}", Backend::Driver.program())))
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = umount2(&self.merged(), MntFlags::MNT_DETACH);
    }
}

#[test]
fn root_a_library_in_two_overlays_is_one() {
    let _shared = host_wide();
    let image = Root::new();
    let containers = [Overlay::over(&image), Overlay::over(&image)];
    let mut first = containers[0].start();
    // A container of another image: a different file with the same path and size.
    let other = Root::new();
    let other = Overlay::over(&other);
    let mut third = other.start();
    let mut gpuprobe = Setup::everything()
        .modes(["--memleak", "--cudatrace"])
        .start();
    let mut second = containers[1].start();
    for (workload, launches) in [(&mut first, 5), (&mut second, 7)] {
        workload.say("alloc 4096 3");
        workload.say(&format!("launch 0 {launches}"));
    }
    third.say("launch 0 9");
    let report = gpuprobe.stop();
    report.assert_nothing_lost_of([first.pid, second.pid, third.pid]);
    for (workload, launches) in [(&first, 5), (&second, 7), (&third, 9)] {
        assert_eq!(report.launched(workload.pid), [(name(0), launches)]);
    }
    report.assert_holds(first.pid, 12_288, 3);
    report.assert_holds(second.pid, 12_288, 3);
}

#[test]
fn root_forked_children_programs_and_threads_have_their_launches() {
    let mut session = Session::start(|setup| setup.modes(LAUNCHES).interval("50ms"));
    let forks = "launch 0 5; fork launch 0 7 | launch 1 3 | graph 4 6";
    let forks = session.play("", Backend::Driver, forks);
    let child = first_number(&forks.replies[1]);
    let threads = "thread a; thread b; @a launch 0 5; @b launch 0 7; launch 0 9; join a; join b";
    let threads = session.play("", Backend::Static, threads);

    // An exec makes it another program.
    let mut talk = session.workload(Backend::Shared);
    talk.say("launch 0 5");
    talk.send(&format!("exec {}", standin().program_text(Backend::Driver)));
    assert_eq!(talk.ready(), talk.pid);
    talk.play("launch 0 7; launch 1 2");
    let changed = session.done(talk);

    // An ended process is reported once, and again at the end.
    let mut parent = session.workload(Backend::Driver);
    parent.say("launch 0 5");
    let killed: u32 = parent.ask("fork launch 1 7 | kill9");
    let ended = |report: &Report| {
        let kernels = report.kernels(killed);
        kernels.iter().any(|kernel| kernel["exited"] == true)
    };
    session.gpuprobe.report_where("the child's end", ended);
    for _ in 0..3 {
        session.gpuprobe.next_report();
    }
    parent.say("launch 0 2");
    let parent = session.done(parent);

    let (last, _) = session.end();
    last.assert_nothing_lost();
    assert_eq!(last.launches(), [15 + 21 + 14 + 14, 6, 4]);
    assert_eq!(last.launched(forks.pid), [(name(0), 5)]);
    assert_eq!(last.kernel(child, name(0))["launches"], 7);
    assert_eq!(last.kernel(child, name(1))["launches"], 3);
    assert_eq!(graphs(&last, child)[1], 6);
    assert_eq!(last.launched(threads.pid), [(name(0), 21)]);
    let mut found: Vec<_> = last
        .kernels(changed.pid)
        .into_iter()
        .map(|k| {
            assert_eq!(k["exited"], true);
            let text = |key: &str| k[key].as_str().unwrap();
            (text("comm"), text("name"), number(k, "launches"))
        })
        .collect();
    found.sort_unstable();
    let mut expected = [
        ("workload", name(0), 5),
        ("workload_driver", name(0), 7),
        ("workload_driver", name(1), 2),
    ];
    expected.sort_unstable();
    assert_eq!(found, expected);

    assert_eq!(last.launched(parent.pid), [(name(0), 7)]);
    assert_eq!(last.launched(killed), [(name(1), 7)]);
    let mut reports = session.gpuprobe.reports();
    reports.pop();
    assert_eq!(reports.iter().filter(|r| ended(r)).count(), 1);
    let before = reports.last().unwrap();
    assert!(before.kernels(killed).is_empty());
    assert!(before.launches()[0] >= 50 + 12, "the totals keep them");
}

fn first_number(reply: &str) -> u32 {
    reply.split(' ').next().unwrap().parse().unwrap()
}
