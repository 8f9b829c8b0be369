//! Libraries under another role's file name, and files that are no longer mapped.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::child::Guarded;
use crate::harness::{Backend, Family, OwnCopy, Setup, Workload, host_wide, wait_for};

/// A process of user `uid` in mount and user namespaces of its own that maps a library under the file name
/// of another role.
fn imitate(uid: u32, library: &str, name: &str, folder: &TempDir) -> Guarded {
    let name = folder.path().join(name);
    fs::write(&name, "").unwrap();
    let name = name.to_str().unwrap();
    let script = "mount --bind \"$0\" \"$1\" && LD_PRELOAD=\"$1\" exec sleep 1000";
    let mut command = Command::new("unshare");
    command
        .uid(uid)
        .gid(uid)
        .args(["--map-root-user", "--mount", "sh", "-c", script])
        .args([library, name])
        .stdin(Stdio::null());
    let child = Guarded::spawn(&mut command).expect("unshare can be run");
    wait_for("the library to be mapped", || {
        let maps = fs::read_to_string(format!("/proc/{}/maps", child.pid())).ok()?;
        maps.contains(name).then_some(())
    });
    child
}

/// Asserts that user `uid` silences no library by mapping it under other names.
fn check_imitations_of(uid: u32) {
    let _shared = host_wide();
    let (copy, folder) = (OwnCopy::for_everyone(), TempDir::new().unwrap());
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let driver = copy.standin().path("libcuda.so.1");
    let runtime = copy.standin().path("libcudart.so.12");
    let (driver, runtime) = (driver.to_str().unwrap(), runtime.to_str().unwrap());
    let _imitations = [
        (driver, "ld-evil.so"),
        (runtime, "ld-other.so"),
        (driver, "libcudart.so.12"),
        (runtime, "libcuda.so.1"),
        (driver, "libc10.so"),
        (runtime, "libc10_cuda.so"),
    ]
    .map(|(library, name)| imitate(uid, library, name, &folder));
    // The imitations exist before gpuprobe starts, so it discovers them first.
    let mut gpuprobe = Setup::everything().interval("50ms").start();
    let mut victims = [Backend::Shared, Backend::Driver].map(|way| Workload::of(&copy, way));
    for victim in &mut victims {
        gpuprobe.until_it_sees(victim.pid, victim);
        victim.say("alloc 12345 7");
    }
    let report = gpuprobe.stop();
    for victim in &victims {
        let found = report.allocations(victim.pid);
        assert_eq!(found.iter().filter(|a| a["bytes"] == 12_345).count(), 7);
    }
    report.assert_nothing_lost_of(victims.map(|victim| victim.pid));
}

#[test]
fn root_library_bind_mounted_under_another_name_is_probed_in_its_own_role() {
    check_imitations_of(0);
}

#[test]
fn root_library_bind_mounted_by_another_user_is_probed_in_its_own_role() {
    check_imitations_of(1001);
}

/// Free and total blocks of the file system of `folder` in the mount namespace of process `pid`.
fn blocks(pid: u32, folder: &str) -> [u64; 2] {
    let output = Command::new("nsenter")
        .args([
            &format!("--mount=/proc/{pid}/ns/mnt"),
            "stat",
            "--file-system",
        ])
        .args(["--format=%f %b", folder])
        .output()
        .expect("nsenter can be run");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut numbers = text.split_ascii_whitespace();
    [(); 2].map(|()| numbers.next().unwrap().parse().unwrap())
}

fn free_blocks(pid: u32, folder: &str) -> u64 {
    blocks(pid, folder)[0]
}

/// Programs `one` and `two` on a tmpfs private to their mount namespace, as in a container.
fn contained(folder: &str, copy: &OwnCopy) -> Family {
    let original = copy.standin().path("");
    let original = original.to_str().unwrap();
    Family::start(&format!(
        "exec unshare --mount sh -c 'mount -t tmpfs tmpfs {folder} && cp {original}/* {folder}/ && \
         {{ @one={folder}/workload & @two={folder}/workload & wait; exec sleep 1000; }}'"
    ))
}

/// Whether the process's report has call sites.
fn has_sites(process: &Value) -> bool {
    process["sites"]
        .as_array()
        .is_some_and(|sites| !sites.is_empty())
}

/// Runs a command in the mount namespace of the family.
fn inside(family: &Family, words: &[&str]) {
    let namespace = format!("--mount=/proc/{}/ns/mnt", family.root());
    let done = Command::new("nsenter").arg(namespace).args(words).status();
    assert!(done.unwrap().success(), "{words:?}");
}

#[test]
fn root_files_of_call_stacks_are_closed_once_unmapped() {
    let _shared = host_wide();
    let (copy, folder) = (OwnCopy::new(), TempDir::new().unwrap());
    let folder = folder.path().to_str().unwrap();
    let family = contained(folder, &copy);
    let setup = Setup::everything().args(["--stacks", "dwarf"]);
    let mut gpuprobe = setup.interval("1s").start();
    let mut members = ["one", "two"].map(|name| family.member(name));
    for member in &mut members {
        let pid = member.pid;
        wait_for("call stacks to be seen", || {
            member.say("alloc 1");
            let report = gpuprobe.next_report();
            let mut entries = report.entries(pid).into_iter();
            entries.any(has_sites).then_some(())
        });
        member.send("exit");
    }
    inside(&family, &["sh", "-c", &format!("rm -r {folder}/*")]);
    wait_for("all files to be closed", || {
        let [free, all] = blocks(family.root(), folder);
        (free == all).then_some(())
    });
    let pids = members.each_ref().map(|member| member.pid);
    gpuprobe.stop().assert_nothing_lost_of(pids);
    let reports = gpuprobe.reports();
    for member in &members {
        // In the report that tells of its end.
        let of_it = reports.iter().flat_map(|report| report.entries(member.pid));
        let mut with_calls = of_it.filter(|process| has_sites(process));
        let sites = &with_calls.next_back().unwrap()["sites"];
        let frames = sites.as_array().into_iter().flatten();
        let frames = frames.flat_map(|site| site["stack"].as_array().unwrap());
        let of_workload = |frame: &&Value| frame["module"] == format!("{folder}/workload");
        let names: Vec<_> = frames.filter(of_workload).map(|f| &f["function"]).collect();
        assert!(names.iter().any(|name| **name == "main"), "{sites:#}");
    }
}

#[test]
fn root_unmapped_files_are_detached() {
    let _shared = host_wide();
    let (copy, folder) = (OwnCopy::new(), TempDir::new().unwrap());
    let folder = folder.path().to_str().unwrap();
    let family = contained(folder, &copy);
    let mut gpuprobe = Setup::everything()
        .args(["--stacks", "off"])
        .interval("50ms")
        .start();
    let mut members = ["one", "two"].map(|name| family.member(name));
    for member in &mut members {
        gpuprobe.until_it_sees(member.pid, member);
    }
    let [mut one, mut two] = members;
    let libraries = ["libcuda.so.1", "libcudart.so.12"].map(|name| format!("{folder}/{name}"));
    one.send("exit");
    inside(&family, &["rm", &libraries[0], &libraries[1]]);
    let kept = free_blocks(family.root(), folder);
    // Files that are still mapped stay attached, however often their use was checked.
    for _ in 0..100 {
        two.say("alloc 12345");
        gpuprobe.next_report();
    }
    let report = gpuprobe.next_report();
    let found = report.allocations(two.pid);
    assert_eq!(found.iter().filter(|a| a["bytes"] == 12_345).count(), 100);
    assert_eq!(free_blocks(family.root(), folder), kept);
    two.send("exit");
    wait_for("the libraries to be given up", || {
        gpuprobe.next_report();
        (free_blocks(family.root(), folder) > kept).then_some(())
    });
    gpuprobe.stop().assert_nothing_lost_of([one.pid, two.pid]);
}
