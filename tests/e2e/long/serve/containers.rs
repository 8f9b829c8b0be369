//! Real containers (runc): programs in one, and gpuprobe in another with the rights that `deploy/` asks for.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::gpuprobe::BINARY;
use crate::harness::served::Served;
use crate::harness::{Backend, Workload, host_wide, standin};

/// As in `deploy/kubernetes/gpuprobe.yaml`.
const CAPABILITIES: [&str; 7] = [
    "CAP_BPF",
    "CAP_PERFMON",
    "CAP_SYS_PTRACE",
    "CAP_DAC_READ_SEARCH",
    "CAP_CHECKPOINT_RESTORE",
    "CAP_SETUID",
    "CAP_SETGID",
];

/// A program of Debian's package `runc`.
fn runc() -> Command {
    let found = Command::new("runc").arg("--version").output();
    assert!(
        found.is_ok_and(|output| output.status.success()),
        "runc: needs Debian's package runc: scripts/test.sh installs it, or apt-get install runc"
    );
    Command::new("runc")
}

/// A container, of the host's libraries and one more folder. Removed on drop.
struct Container {
    id: String,
    folder: TempDir,
}

impl Container {
    fn new(id: &str, program: &Path, arguments: &[&str], shares: bool) -> Self {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["app", "lib", "lib64", "usr", "proc", "sys", "dev", "tmp"] {
            fs::create_dir_all(at("rootfs").join(name)).unwrap();
        }
        let app = program.parent().unwrap().to_str().unwrap();
        let bind = |path: &str, from: &str| json!({"destination": path, "source": from, "type": "bind", "options": ["rbind", "ro"]});
        let made = runc().arg("spec").current_dir(folder.path()).status();
        assert!(made.unwrap().success());
        let mut config: Value =
            serde_json::from_slice(&fs::read(at("config.json")).unwrap()).unwrap();
        let mounts = config["mounts"].as_array_mut().unwrap();
        mounts.extend(["/lib", "/lib64", "/usr"].map(|path| bind(path, path)));
        mounts.push(bind("/app", app));
        let name = program.file_name().unwrap().to_str().unwrap();
        let program = format!("/app/{name}");
        let words = [&[&*program], arguments].concat();
        config["process"]["args"] = json!(words);
        config["process"]["terminal"] = json!(false);
        config["process"]["rlimits"] = json!([]);
        config["linux"]["cgroupsPath"] = json!(format!("/docker-{id}.scope"));
        if shares {
            let all = config["linux"]["namespaces"].as_array_mut().unwrap();
            all.retain(|one| one["type"] != "pid" && one["type"] != "network");
            let sets = ["bounding", "effective", "permitted"];
            let sets = sets.map(|set| (set.to_owned(), json!(CAPABILITIES)));
            config["process"]["capabilities"] = sets.into_iter().collect();
        }
        fs::write(at("config.json"), config.to_string()).unwrap();
        let id = id.to_owned();
        Self { id, folder }
    }

    /// The command that runs it.
    fn command(&self) -> Command {
        let mut command = runc();
        command.args(["run", "--bundle"]).arg(self.folder.path());
        command.arg(&self.id);
        command
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let removed = runc().args(["delete", "--force", &self.id]).output();
        drop(removed);
    }
}

#[test]
fn root_a_container_with_the_documented_rights_sees_another() {
    let _turn = host_wide();
    let own = format!("{:08x}", std::process::id());
    let [tracing, traced] =
        ["ab", "cd"].map(|text| format!("{own}{text}").repeat(7)[..64].to_owned());
    let program = standin().program(Backend::Driver);
    let traced = Container::new(&traced, &program, &[], false);
    let arguments = ["serve", "--listen", "127.0.0.1:0"];
    let tracing = Container::new(&tracing, Path::new(BINARY), &arguments, true);
    let mut workload = Workload::spawn(&mut traced.command());
    assert_eq!(workload.pid, 1, "a namespace of its own");
    let served = Served::spawn(&mut tracing.command());
    workload.play("alloc 1048576 3; launch 0 100; free 0");
    let truth = workload.status();
    let container = [("container_id", traced.id.as_str())];
    let metrics = served.metrics_where("the launches", |metrics| {
        metrics.sum("gpuprobe_kernel_launches_total", &container) == truth.launches
            && metrics.sum("gpuprobe_gpu_memory_bytes", &container) == truth.bytes
    });
    let site = [container[0], ("site", "unknown")];
    served.metrics_where("the names of call sites", |metrics| {
        metrics
            .series("gpuprobe_memory_site_bytes", &site)
            .is_empty()
    });
    assert!(
        metrics
            .series("gpuprobe_gpu_memory_bytes", &[("pid", "1")])
            .is_empty()
    );
    metrics.assert_nothing_lost();
}
