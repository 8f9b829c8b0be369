//! Files created under sudo belong to the calling user.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::process::Command;

use tempfile::TempDir;

use super::shared::{GROUP, Shared, USER, owner};
use crate::harness::gpuprobe::BINARY;
use crate::harness::{Backend, OwnCopy, Setup};

#[test]
fn root_created_files_belong_to_the_user_who_called_sudo() {
    let shared = Shared::new();
    let copy = OwnCopy::for_everyone();
    let home = TempDir::new().unwrap();
    chown(home.path(), Some(USER), Some(GROUP)).unwrap();
    // In the user's own folder, in a shared one, and in root's.
    for (name, folder) in [
        ("home", home.path()),
        ("shared", shared.folder.path()),
        ("private", shared.private.path()),
    ] {
        let path = |file: &str| folder.join(format!("{name}-{file}"));
        let [run, reports] = [path("run.sqlite"), path("reports")];
        let profiles = ["folded", "flamegraph", "pprof"].map(|form| (form, path(form)));
        let mut setup = Setup::command([copy.standin().program_text(Backend::Shared)])
            .on_stdout()
            .args(["--interval", "100ms", "-o", reports.to_str().unwrap()])
            .no_interval()
            .args(["--record", run.to_str().unwrap()])
            .env("SUDO_UID", &USER.to_string())
            .env("SUDO_GID", &GROUP.to_string());
        for (form, path) in &profiles {
            setup = setup.args([format!("--{form}"), path.to_str().unwrap().to_owned()]);
        }
        let mut gpuprobe = setup.start();
        let pid = gpuprobe.talk.ready();
        let of_command = fs::metadata(format!("/proc/{pid}")).unwrap().uid();
        assert_eq!(of_command, USER, "{name}");
        gpuprobe.talk.say("alloc 4096 3");
        for suffix in ["", "-wal", "-shm"] {
            let path = path(&format!("run.sqlite{suffix}"));
            assert_eq!(owner(&path), (USER, GROUP), "{}", path.display());
        }
        gpuprobe.talk.done();
        assert_eq!(gpuprobe.exit_code(), 0, "{:#?}", gpuprobe.said());
        let said = gpuprobe.said().join("\n");
        assert!(!said.contains("warning"), "{said}");
        for path in profiles
            .iter()
            .map(|(_, path)| path)
            .chain([&run, &reports])
        {
            assert_eq!(owner(path), (USER, GROUP), "{}", path.display());
        }
        for suffix in ["-wal", "-shm", "-journal"] {
            assert!(
                !path(&format!("run.sqlite{suffix}")).exists(),
                "{name}{suffix}"
            );
        }
        // An existing file keeps its owner.
        let kept = path("kept");
        fs::write(&kept, "").unwrap();
        let as_user = |action: &str, arguments: &[&str]| {
            let mut command = Command::new(BINARY);
            command
                .arg(action)
                .arg(&run)
                .args(arguments)
                .env("SUDO_UID", USER.to_string())
                .env("SUDO_GID", GROUP.to_string());
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
        };
        as_user("report", &["-o", kept.to_str().unwrap()]);
        assert_eq!(owner(&kept), (0, 0));
        let tables = path("tables").join("within");
        as_user(
            "export",
            &["--format", "tsv", "-o", tables.to_str().unwrap()],
        );
        let picture = path("plot.png");
        as_user("plot", &["-o", picture.to_str().unwrap()]);
        let [trace, packed] = ["trace.json", "trace.json.gz"].map(path);
        for trace in [&trace, &packed] {
            as_user("export", &["-o", trace.to_str().unwrap()]);
        }
        let table = tables.join("valid.tsv");
        for made in [&table, &tables, &path("tables"), &picture, &trace, &packed] {
            assert_eq!(owner(made), (USER, GROUP), "{}", made.display());
        }
    }
}
