//! Several versions of the runtime and the driver at once, as wheels and conda install them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::harness::session::Ended;
use crate::harness::{Backend, Session, Setup, Workload, standin};

/// Runtimes under the names that installers give them.
const RUNTIMES: [&str; 4] = [
    "site-packages/nvidia/cuda_runtime/lib/libcudart.so.12",
    "site-packages/nvidia/cu13/lib/libcudart.so.13",
    "site-packages/torch/lib/libcudart-d0da41ae.so.11.0",
    "envs/conda/lib/libcudart.faf08d9a.so.13",
];
/// A bundled driver, instead of the host's.
const COMPAT: &str = "usr/local/cuda/compat/libcuda.so.1";

/// A folder with copies of the libraries.
struct Installed(TempDir);

impl Installed {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let installed = Self(folder);
        for runtime in RUNTIMES {
            installed.put("libcudart.so.12", runtime, |bytes| bytes);
        }
        installed.put("libcuda.so.1", COMPAT, |bytes| bytes);
        installed
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    fn put(&self, original: &str, file: &str, change: impl Fn(Vec<u8>) -> Vec<u8>) {
        let path = self.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let bytes = fs::read(standin().path(original)).unwrap();
        fs::write(path, change(bytes)).unwrap();
    }

    /// A command that starts a workload with the bundled driver.
    fn words(&self, backend: Backend) -> [String; 3] {
        let folder = self.path(COMPAT);
        let folder = folder.parent().unwrap().display();
        let program = standin().program_text(backend);
        let set = format!("LD_LIBRARY_PATH={folder}");
        ["env".to_owned(), set, program]
    }

    /// The command that loads a runtime.
    fn load(&self, runtime: &str) -> String {
        format!("load {}", self.path(runtime).display())
    }
}

/// The bundled driver is found by its own name only.
fn renamed(mut bytes: Vec<u8>) -> Vec<u8> {
    let (old, new) = (b"libcuda.so.1\0", b"libcuda.so.2\0");
    let places: Vec<_> = bytes
        .windows(old.len())
        .enumerate()
        .filter_map(|(place, window)| (window == old).then_some(place))
        .collect();
    assert!(!places.is_empty());
    for place in places {
        bytes[place..place + new.len()].copy_from_slice(new);
    }
    bytes
}

#[test]
fn root_every_runtime_and_driver_of_a_command_is_counted() {
    let [all, two, one, other] = [(); 4].map(|()| Installed::new());
    let second = "other/lib/libcudart.so.13";
    two.put("libcudart.so.12", second, renamed);
    two.put("libcuda.so.1", "other/lib/libcuda.so.2", renamed);
    let of_all = (1..).zip(RUNTIMES);
    let mut of_all: Vec<_> = of_all
        .map(|(size, runtime)| (runtime, format!("alloc {} 5; free 0", size * 1000)))
        .collect();
    // By the last runtime, memory of the first.
    of_all.push((RUNTIMES[3], "free 1".to_owned()));
    let of_two = [
        (RUNTIMES[0], "alloc 4096 3; free 0"),
        (second, "alloc 512 4"),
    ];
    let of_two = of_two.map(|(runtime, commands)| (runtime, commands.to_owned()));
    let loads = |runtime, commands: &str| vec![(runtime, commands.to_owned())];
    let mut session = Session::start(Setup::without_stacks);
    let mut ended = Vec::new();
    for (installed, parts) in [
        (&all, of_all),
        (&two, of_two.into()),
        (&one, loads(RUNTIMES[2], "alloc 1000 3; free 1")),
        (&other, loads(RUNTIMES[1], "alloc 300 2")),
        (&other, loads(RUNTIMES[3], "alloc 50 4; free 0 2")),
    ] {
        let mut member = session.program(&installed.words(Backend::Dlopen).join(" "));
        for (runtime, commands) in parts {
            member.say(&installed.load(runtime));
            member.play(&commands);
        }
        if installed.path(second).exists() {
            let maps = fs::read_to_string(format!("/proc/{}/maps", member.pid)).unwrap();
            let mapped = |file: &str| maps.contains(two.path(file).to_str().unwrap());
            assert!(mapped(COMPAT) && mapped("other/lib/libcuda.so.2"));
        }
        ended.push(session.done(member));
    }
    let mut of_host = session.workload(Backend::Driver);
    of_host.say("alloc 7");
    ended.push(session.done(of_host));
    let (report, truth) = session.end();
    report.assert_totals(truth);
    report.assert_calls(&[("cuMemAlloc_v2", 1), ("cudaMalloc", 20 + 7 + 9)]);
    for Ended { pid, truth, .. } in ended {
        report.assert_holds(pid, truth.bytes, truth.live);
    }
}

#[test]
fn root_late_attach_probes_every_version() {
    let installed = Installed::new();
    let words = installed.words(Backend::Dlopen);
    let mut workload = Workload::spawn(Command::new(&words[0]).args(&words[1..]));
    for runtime in RUNTIMES {
        workload.say(&installed.load(runtime));
        workload.say("freenull");
    }
    let setup = Setup::pid_without_stacks(workload.pid).args(["-v"]);
    let mut gpuprobe = setup.start();
    assert_eq!(gpuprobe.announced().1, RUNTIMES.len() as u64 + 1);
    for (size, runtime) in (1..).zip(RUNTIMES) {
        workload.say(&installed.load(runtime));
        workload.say(&format!("alloc {} 2", size * 1000));
    }
    workload.say("free 7");
    let report = gpuprobe.stop();
    report.assert_totals(workload.status());
    report.assert_calls(&[("cudaMalloc", 8)]);
    report.assert_holds(workload.pid, 16_000, 7);
}

/// Replaces `path` with another file, as an installer does.
fn replace(path: &Path) {
    let new = path.with_extension("new");
    fs::copy(path, &new).unwrap();
    fs::rename(new, path).unwrap();
}

/// A workload that maps libraries which were replaced, and removed if `is_removed`.
pub(crate) fn replaced_while_mapped(is_removed: bool) -> (Workload, impl Sized) {
    let installed = Installed::new();
    let words = installed.words(Backend::Dlopen);
    let mut workload = Workload::spawn(Command::new(&words[0]).args(&words[1..]));
    workload.say(&installed.load(RUNTIMES[0]));
    workload.say("freenull");
    for path in [RUNTIMES[0], COMPAT].map(|file| installed.path(file)) {
        replace(&path);
        if is_removed {
            fs::remove_file(path).unwrap();
        }
    }
    let maps = fs::read_to_string(format!("/proc/{}/maps", workload.pid)).unwrap();
    assert!(maps.contains("libcuda.so.1 (deleted)"));
    (workload, installed)
}

#[test]
fn root_a_library_may_be_replaced_while_it_is_traced() {
    let installed = Installed::new();
    let mut gpuprobe = Setup::command_without_stacks(installed.words(Backend::Dlopen)).start();
    let pid = gpuprobe.talk.ready();
    gpuprobe.talk.say(&installed.load(RUNTIMES[0]));
    gpuprobe.talk.say("alloc 4096 3");
    for file in [RUNTIMES[0], COMPAT] {
        replace(&installed.path(file));
    }
    // Still by the old runtime.
    gpuprobe.talk.say("alloc 512 2");
    // From now on, new processes have the new runtime; this one has it beside the old.
    let words = installed.words(Backend::Dlopen).join(" ");
    let load = installed.load(RUNTIMES[0]);
    let run = format!("forkexec /usr/bin/{words} -c '{load}; alloc 64 2; exit'");
    let child: u32 = gpuprobe.talk.ask(&run);
    gpuprobe.talk.say(&load);
    gpuprobe.talk.say("alloc 256 2");
    let truth = gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    report.assert_calls(&[("cudaMalloc", truth.allocs + 2)]);
    report.assert_holds(pid, truth.bytes, truth.live);
    report.assert_holds(child, 128, 2);
}
