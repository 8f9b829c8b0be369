//! Python functions, in programs run by `python -X perf`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::report::{list, number};
use crate::harness::{Report, Setup, standin, wait_for};

/// Calls by the same path: five times as many as stacks are copied in a second.
const CALLS: u64 = 20_000;

/// Every Python with `-X perf`.
fn pythons() -> &'static [PathBuf] {
    static FOUND: OnceLock<Vec<PathBuf>> = OnceLock::new();
    crate::harness::require_bpf();
    FOUND.get_or_init(find_pythons)
}

/// One of them.
fn python() -> &'static Path {
    pythons().last().expect("one at least")
}

fn find_pythons() -> Vec<PathBuf> {
    let all = crate::pythons::pythons().into_iter();
    let programs = all.map(|python| python.program);
    let found: Vec<_> = programs.filter(|python| has_trampolines(python)).collect();
    assert!(
        !found.is_empty(),
        "there is no Python with -X perf, which CPython has from 3.12 on for x86-64: install one \
         (apt-get install python3.12, or pyenv install 3.12)"
    );
    found
}

/// Interpreter frames are not walked, so that only the perf map names functions.
const BY_MAP: [&str; 2] = ["--python", "off"];

fn has_trampolines(python: &Path) -> bool {
    let script = "import os, sys\n\
                  sys.is_stack_trampoline_active() or sys.exit(1)\n\
                  os.unlink(f'/tmp/perf-{os.getpid()}.map')";
    let mut command = Command::new(python);
    let ran = command.args(["-X", "perf", "-c", script]).output();
    ran.is_ok_and(|ran| ran.status.success())
}

/// `python -X perf` with the program that allocates.
fn words(python: &Path, way: &str) -> Vec<String> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/programs/nested.py");
    let program = program.to_str().unwrap();
    let python = python.to_str().unwrap();
    let (runtime, calls) = (standin().runtime(), CALLS.to_string());
    [python, "-B", "-X", "perf", program, &runtime, &calls, way]
        .map(str::to_owned)
        .to_vec()
}

/// Allocated bytes and calls by path of Python functions.
fn by_path(sites: &[Value]) -> Vec<(String, u64)> {
    let mut paths: Vec<(String, u64)> = Vec::new();
    for site in sites {
        assert_eq!(site["complete"], true, "{site}");
        let frames = list(site, "stack").iter();
        let of_python = frames.filter(|frame| frame["language"] == "python");
        let name = |frame: &Value| {
            assert!(frame["file"].as_str().unwrap().ends_with("/nested.py"));
            assert!(frame["line"].is_null() && frame["module"] == "[jit]");
            frame["function"].as_str().unwrap().to_owned()
        };
        let path = of_python.map(name).collect::<Vec<_>>().join(" < ");
        let calls = number(site, "live_allocations");
        // Some versions call from several places of the interpreter.
        match paths.iter_mut().find(|(known, _)| *known == path) {
            Some((_, sum)) => *sum += calls,
            None => paths.push((path, calls)),
        }
    }
    paths.sort_by_key(|(_, calls)| u64::MAX - calls);
    paths
}

/// The PID of the only process, and its call sites.
fn sites_of_only(report: &Report) -> (u64, &[Value]) {
    let process = &list(&report["memleak"], "processes")[0];
    (number(process, "pid"), list(process, "sites"))
}

/// Calls by path of the whole program.
fn expected() -> [(String, u64); 2] {
    [(OF_TRAIN.to_owned(), CALLS), (OF_EVALUATE.to_owned(), 1)]
}

const OF_TRAIN: &str = "allocate < Model.forward < step < train < <module>";
const OF_EVALUATE: &str = "allocate < Model.forward < evaluate < <module>";

/// The names are read in time: when the report is made, the process has exited and its map is gone.
#[test]
fn root_perf_map_functions_are_named_after_process_exit() {
    for python in pythons() {
        let mut gpuprobe = Setup::command(words(python, "at once"))
            .args(BY_MAP)
            .spawn();
        let report = gpuprobe.final_report();
        // Without paths learnt from stack copies, most stacks would be incomplete.
        report.assert_nothing_lost();
        let (pid, sites) = sites_of_only(&report);
        assert_eq!(by_path(sites), expected(), "{}", python.display());
        assert!(!Path::new(&format!("/tmp/perf-{pid}.map")).exists());
    }
}

/// The map is in the mount namespace of the process, under its PID in its PID namespace.
#[test]
fn root_perf_map_functions_are_named_in_namespaces() {
    // The checkout and the stand-in stay where they are, even below /tmp.
    let script = r#"
        mount -t tmpfs none "$0" || exit 1
        for kept in "$1" "$2"; do
            below=$0/${kept#/tmp/}
            case $kept in
            /tmp/*) mkdir -p "$below" && mount --bind "$kept" "$below" || exit 1 ;;
            esac
        done
        mount --move "$0" /tmp && shift 2 && exec "$@"
    "#;
    let built = standin().path("");
    let new = TempDir::new().unwrap();
    let folders = [new.path(), Path::new(env!("CARGO_MANIFEST_DIR")), &built];
    let folders = folders.map(|folder| folder.to_str().unwrap());
    let unshare = ["unshare", "--mount", "--pid", "--fork", "--mount-proc"];
    let shell = ["sh", "-c", script].into_iter().chain(folders);
    let own = unshare.into_iter().chain(shell).map(str::to_owned);
    let command = own.chain(words(python(), "at once"));
    let mut gpuprobe = Setup::command(command).args(BY_MAP).spawn();
    let report = gpuprobe.final_report();
    let sites = sites_of_only(&report).1;
    assert_eq!(by_path(sites), expected());
}

/// A map that is created after the process was first looked at is read while the process lives.
#[test]
fn root_perf_map_created_late_is_read() {
    let mut words = words(python(), "late");
    words.retain(|word| !["-X", "perf"].contains(&word.as_str()));
    let mut gpuprobe = Setup::command(words).args(BY_MAP).spawn();
    let files = PathBuf::from(format!("/proc/{}/fd", gpuprobe.child.pid()));
    let map = wait_for("gpuprobe to open the map", || {
        let files = files.read_dir().unwrap().flatten();
        let mut paths = files.filter_map(|file| file.path().read_link().ok());
        paths.find(|path| path.starts_with("/tmp") && path.extension() == Some("map".as_ref()))
    });
    gpuprobe.talk.send("go on");
    gpuprobe.wait();
    assert!(!map.exists());
    let report = gpuprobe.final_report();
    let sites = sites_of_only(&report).1;
    // Functions that run already have no trampoline.
    let expected = OF_EVALUATE.strip_suffix(" < <module>").unwrap().to_owned();
    let found = by_path(sites);
    assert!(found.contains(&(expected, 1)), "{found:?}");
}

/// Another user has made a file of the map's name before the process did; it may write to it all the same.
#[test]
fn root_perf_map_of_another_user_names_no_function() {
    let plant = "echo '1000 7fffffffe000 planted' | \
                 setpriv --reuid=65534 --clear-groups tee /tmp/perf-$$.map >/dev/null && exec \"$@\"";
    let shell = ["sh", "-c", plant, "sh"].map(str::to_owned);
    let command = shell.into_iter().chain(words(python(), "at once"));
    let mut gpuprobe = Setup::command(command).args(BY_MAP).spawn();
    let report = gpuprobe.final_report();
    let sites = sites_of_only(&report).1;
    let frames = sites.iter().flat_map(|site| list(site, "stack"));
    let made = frames.filter(|frame| frame["module"] == "[jit]");
    for frame in made {
        assert!(frame["function"].is_null(), "{frame}");
    }
    assert!(!report.to_string().contains("planted"));
}
