//! A hostile traced program: its own libraries under the names of CUDA's, called with wild
//! pointers, sizes of 2^64 - 1, unterminated names and control characters.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gpuprobe_cuda::{FUNCTIONS, Layer};
use serde_json::Value;
use tempfile::TempDir;

use super::{cc, source};
use crate::harness::child::Guarded;
use crate::harness::gpuprobe::BINARY;
use crate::harness::talk::Talk;
use crate::harness::{Setup, alone, standin};

/// Every traced function, in every variant.
fn names(layer: Layer) -> Vec<&'static str> {
    let of_layer = FUNCTIONS.iter().filter(|f| f.layer == layer);
    let mut names: Vec<_> = of_layer
        .flat_map(gpuprobe_cuda::Function::symbols)
        .collect();
    // The self-test's function is in no library.
    names.retain(|name| name.starts_with("cu"));
    names.sort_unstable();
    names.dedup();
    names
}

/// Functions whose first instruction causes a warning of gpuprobe, with the library's path.
const STEPPED: &[&str] = &["cuMemHostRegister_v2", "cudaHostRegister"];

/// A library with all functions of `layer`. Most succeed and do nothing; every eighth call of a
/// function fails.
fn library(folder: &Path, name: &str, layer: Layer) -> PathBuf {
    let mut text = String::new();
    for symbol in names(layer) {
        if STEPPED.contains(&symbol) {
            let line = "__asm__(\"enter $0, $0; leave; xor %eax, %eax; ret\");";
            writeln!(
                text,
                "__attribute__((naked)) int {symbol}(void) {{ {line} }}"
            )
            .unwrap();
            continue;
        }
        let line = "static unsigned calls; return calls++ % 8 == 7 ? 2 : 0;";
        writeln!(text, "int {symbol}(void) {{ {line} }}").unwrap();
    }
    let source = folder.join("library.c");
    fs::write(&source, text).unwrap();
    // The folder's name has control characters and is not UTF-8.
    let inside = folder.join(OsStr::from_bytes(b"\x1b[31m\nred\xff"));
    fs::create_dir_all(&inside).unwrap();
    let path = inside.join(name);
    let flags = ["-fcf-protection=none", "-shared", "-fPIC", "-o"].map(OsStr::new);
    cc(&[&flags[..], &[path.as_ref(), source.as_ref()]].concat());
    path
}

struct Hostile {
    folder: TempDir,
    child: Guarded,
    talk: Talk,
}

impl Hostile {
    fn start() -> Self {
        standin();
        let folder = TempDir::new().unwrap();
        let source = source("calls.c");
        let program = folder.path().join("hostile");
        let libraries = OsStr::new("-ldl");
        cc(&["-o".as_ref(), program.as_ref(), source.as_ref(), libraries]);
        let mut command = Command::new(&program);
        command
            .arg(library(folder.path(), "libcuda.so.1", Layer::Driver))
            .arg(library(folder.path(), "libcudart.so.12", Layer::Runtime))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = Guarded::spawn(&mut command).unwrap();
        let mut talk = Talk::new(&mut child);
        assert_eq!(talk.hear(), "ready");
        Self {
            folder,
            child,
            talk,
        }
    }

    /// Calls everything; returns the number of calls.
    fn go(&mut self) -> u64 {
        for name in [Layer::Driver, Layer::Runtime].into_iter().flat_map(names) {
            self.talk.send(name);
        }
        self.talk.send("done");
        let said = self.talk.hear();
        said.strip_prefix("done ").unwrap().parse().unwrap()
    }
}

/// Asserts that the text has no terminal control characters.
fn assert_plain(text: &str) {
    let bad = text.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(bad, None, "{text:?}");
}

#[test]
fn root_hostile_program_does_no_harm() {
    // The total of these sizes overflows.
    let _alone = alone();
    let mut hostile = Hostile::start();
    let modes = ["--memleak", "--cudatrace", "--bandwidth-util"];
    let recording = hostile.folder.path().join("run.sqlite");
    let flames = hostile.folder.path().join("flames.svg");
    let files = [&recording, &flames].map(|path| path.to_str().unwrap().to_owned());
    for (format, stacks) in [("text", "auto"), ("json", "dwarf"), ("text", "off")] {
        let mut setup = Setup::pid(hostile.child.pid())
            .modes(modes)
            .format(format)
            .args(["--stacks", stacks, "--api", "auto"]);
        if stacks == "dwarf" {
            setup = setup.args(["--record", &files[0], "--flamegraph", &files[1]]);
        }
        let mut gpuprobe = setup.start();
        let calls = hostile.go();
        assert!(calls > 1000, "{calls}");
        gpuprobe.interrupt();
        assert_eq!(gpuprobe.exit_code(), 0);
        let said = gpuprobe.said();
        for line in &said {
            assert_plain(line);
            let begins = ["gpuprobe: ", " WARN "].iter().any(|b| line.starts_with(b));
            assert!(begins, "one message is one line: {said:#?}");
        }
        for library in ["libcuda.so.1", "libcudart.so.12"] {
            // The name was seen with control characters, which were removed.
            let end = format!("red\u{fffd}/{library}:");
            let is_of_it = |line: &String| line.contains("[31m") && line.contains(&end);
            assert!(said.iter().any(is_of_it), "{said:#?}");
        }
        let report = fs::read_to_string(&gpuprobe.reports).unwrap();
        if format == "text" {
            assert_plain(&report);
            let kernel = "\\u{1b}]0;kernel\\u{7}\\u{1b}[2J\\r\\n\\u{7f}\\u{9b}";
            assert!(report.contains(kernel), "{report}");
        } else {
            let report: Value = serde_json::from_str(report.lines().last().unwrap()).unwrap();
            assert_eq!(report["lost"]["undecodable"], 0, "{}", report["lost"]);
            let comm = &report["memleak"]["processes"][0]["comm"];
            assert_eq!(comm, "\u{1b}[2J;\u{fffd}\"<&>\n\\");
            let calls = report["memleak"]["alloc_calls"].as_u64().unwrap();
            assert!(calls > 100, "{calls}");
        }
    }
    // One table each.
    for mode in modes {
        let mut gpuprobe = Setup::pid(hostile.child.pid())
            .modes([mode])
            .format("csv")
            .args(["--stacks", "off"])
            .start();
        hostile.go();
        gpuprobe.interrupt();
        assert_eq!(gpuprobe.exit_code(), 0);
        let table = fs::read_to_string(&gpuprobe.reports).unwrap();
        let mut rows = csv::Reader::from_reader(table.as_bytes());
        let rows = rows
            .records()
            .map(|row| row.expect("as long as the header"));
        let rows: Vec<_> = rows.collect();
        assert!(!rows.is_empty(), "{mode}");
        if mode != "--bandwidth-util" {
            assert_eq!(&rows[0][4], "\u{1b}[2J;\u{fffd}\"<&>\n\\", "{mode}");
        }
    }
    let svg = fs::read_to_string(&flames).unwrap();
    assert_plain(&svg.replace('\t', " "));
    // Every reader accepts the recording.
    for arguments in [
        &["report", &files[0]] as &[&str],
        &["report", &files[0], "--analysis", "watermark", "--host"],
        &["report", &files[0], "--analysis", "leakage", "--group"],
        &["report", &files[0], "--analysis=kernels"],
        &["report", &files[0], "--analysis=copies"],
        &["replay", &files[0]],
    ] {
        let output = Command::new(BINARY).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        assert_plain(&String::from_utf8(output.stdout).unwrap());
        assert_plain(&said);
    }
}
