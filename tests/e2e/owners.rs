//! Owners of memory: programs with libraries that allocate.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::report::list;
use crate::harness::{Setup, standin};

/// A folder with a program, `train_app`, and its shared libraries.
struct OwnerProgram {
    folder: TempDir,
}

impl OwnerProgram {
    fn new() -> Self {
        let program = Self {
            folder: TempDir::new().unwrap(),
        };
        program.library("libnccl.so.2", "nccl_allocates", "cudaMalloc", &[]);
        program.library("libcublasLt.so.12", "blas_allocates", "cudaMalloc", &[]);
        let ordered = ["-DSTREAM_ORDERED".to_owned()];
        program.library(
            "libc10_cuda.so",
            "c10_allocates",
            "cudaMallocAsync",
            &ordered,
        );
        let inner = [program.path("libc10_cuda.so").display().to_string()];
        program.library(
            "libtorch_cuda.so",
            "torch_allocates",
            "c10_allocates",
            &inner,
        );
        let libraries = ["libnccl.so.2", "libcublasLt.so.12", "libtorch_cuda.so"];
        let libraries = libraries.map(|name| program.path(name).display().to_string());
        program.compile("main.c", "train_app", &libraries);
        program
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn library(&self, name: &str, function: &str, allocate: &str, more: &[String]) {
        let own = [
            "-shared".to_owned(),
            "-fPIC".to_owned(),
            format!("-DFUNCTION={function}"),
            format!("-DALLOCATE={allocate}"),
            format!("-Wl,-soname,{name}"),
        ];
        self.compile("library.c", name, &[&own, more].concat());
    }

    fn compile(&self, source: &str, name: &str, arguments: &[String]) {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/programs/owners");
        let runtime = PathBuf::from(standin().runtime());
        let folders = [self.folder.path(), runtime.parent().unwrap()];
        let made = Command::new("cc")
            .arg(sources.join(source))
            .arg("-o")
            .arg(self.path(name))
            .args(arguments)
            .arg(&runtime)
            .args(folders.map(|folder| format!("-Wl,-rpath,{}", folder.display())))
            .args(["-Wl,--no-as-needed", "-ldl"])
            .output()
            .expect("cc can be run");
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{said}");
    }

    /// The command that allocates these bytes in the program, libnccl, libcublasLt and libtorch.
    fn run(&self, bytes: [u64; 4]) -> Vec<String> {
        let program = self.path("train_app").display().to_string();
        let bytes = bytes.map(|bytes| bytes.to_string());
        [program].into_iter().chain(bytes).collect()
    }
}

fn owner(name: &str, bytes: u64) -> Value {
    json!({"owner": name, "bytes": bytes, "allocations": 1})
}

#[test]
fn root_memory_belongs_to_the_requesting_library() {
    let program = OwnerProgram::new();
    let command = program.run([1000, 30_000, 20_000, 4000]);
    // However few sites are listed.
    let mut gpuprobe = Setup::command(command).args(["--top", "1"]).start();
    let report = gpuprobe.final_report();
    let process = &list(&report["memleak"], "processes")[0];
    let expected = [
        owner("libnccl", 30_000),
        owner("libcublas", 20_000),
        owner("libtorch", 4000),
        owner("train_app", 1000),
    ];
    assert_eq!(process["owners"], json!(expected));
    assert_eq!(report["memleak"]["owners"], json!(expected));
    assert_eq!(
        process["framework_pools"],
        json!(["PyTorch, cudaMallocAsync"])
    );
}

#[test]
fn root_without_call_stacks_owners_are_unknown() {
    let program = OwnerProgram::new();
    let command = program.run([1000, 30_000, 20_000, 4000]);
    let setup = Setup::command(command).args(["--stacks", "off"]);
    let report = setup.start().final_report();
    let all = json!([{"owner": "unknown", "bytes": 55_000, "allocations": 4}]);
    assert_eq!(report["memleak"]["owners"], all);
    let process = &list(&report["memleak"], "processes")[0];
    assert!(process.get("framework_pools").is_none(), "{process}");
}
