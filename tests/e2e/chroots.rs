//! Chroots: files that only the traced process can open. `containers` has commands and processes in one.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::harness::{
    Backend, Family, Gpuprobe, OwnCopy, Root, Setup, copy_program, host_wide, standin,
};

#[test]
fn root_new_containers_are_traced_host_wide() {
    let _shared = host_wide();
    let mut gpuprobe = Setup::everything().interval("50ms").start();
    // Each with a loader, a C library and CUDA libraries that gpuprobe has not attached to.
    let roots: Vec<_> = (0..8).map(|_| Root::new()).collect();
    let mut workloads = Vec::new();
    for (root, backend) in roots
        .iter()
        .zip([Backend::Shared, Backend::Driver].into_iter().cycle())
    {
        let mut workload = root.start(backend);
        gpuprobe.until_it_sees(workload.pid, &mut workload);
        workload.say("alloc 12345 7");
        workloads.push(workload);
    }
    let report = gpuprobe.stop();
    for workload in &workloads {
        let found = report.allocations(workload.pid);
        assert_eq!(found.iter().filter(|a| a["bytes"] == 12_345).count(), 7);
    }
}

/// Starts workloads in the root until one is traced from its first call: the next start of its program
/// causes no scan.
fn until_known(root: &Root, gpuprobe: &Gpuprobe) {
    let mut late = root.start(Backend::Shared);
    gpuprobe.until_it_sees(late.pid, &mut late);
    for _ in 0..2 {
        let mut next = root.start(Backend::Shared);
        next.say("alloc 4096");
        gpuprobe.report_where("the first call", |report| {
            let of_it = report.entries(next.pid);
            of_it.iter().any(|process| process["live_bytes"] == 4096)
        });
    }
}

#[test]
fn root_a_program_in_another_root_has_another_loader() {
    let _shared = host_wide();
    let known = Root::new();
    let linked = |original: &Path, link: &Path| {
        let name = original.file_name().unwrap().to_str().unwrap();
        match name == Backend::Shared.program() {
            true => fs::hard_link(known.path(name), link).unwrap(),
            false => copy_program(original, link),
        }
    };
    let other = Root::made_with(linked);
    let mut gpuprobe = Setup::everything().interval("50ms").start();
    until_known(&known, &gpuprobe);
    let mut workload = other.start(Backend::Shared);
    gpuprobe.until_it_sees(workload.pid, &mut workload);
    gpuprobe.stop();
}

#[test]
fn root_the_inode_of_a_known_program_may_become_another_programs() {
    let _shared = host_wide();
    let root = Root::new();
    let mut gpuprobe = Setup::everything().interval("50ms").start();
    until_known(&root, &gpuprobe);
    let program = root.path(Backend::Shared.program());
    let inode = fs::metadata(&program).unwrap().ino();
    root.replace_libraries();
    // As file systems do that give the number of a deleted file to the next one.
    copy_program(standin().path(Backend::Shared.program()), &program);
    assert_eq!(fs::metadata(&program).unwrap().ino(), inode);
    let mut workload = root.start(Backend::Shared);
    gpuprobe.until_it_sees(workload.pid, &mut workload);
    gpuprobe.stop();
}

#[test]
fn root_file_in_several_mount_namespaces_is_attached_once() {
    let copy = OwnCopy::new();
    let link = |original: &Path, link: &Path| {
        let name = original.file_name().unwrap().to_str().unwrap();
        fs::hard_link(copy.standin().path(name), link).unwrap();
    };
    let roots = [Root::made_with(link), Root::made_with(link)];
    let [one, two] = roots.each_ref().map(|root| root.path(""));
    let [one, two] = [one.display(), two.display()];
    let script = format!(
        "LD_LIBRARY_PATH=/ chroot {one} @one=/workload & \
         LD_LIBRARY_PATH=/ chroot {two} @two=/workload & \
         unshare --mount @three & exec @root"
    );
    let program = copy.standin().program(Backend::Shared);
    let (alone, tree) = (
        Family::of(&program, "exec @root"),
        Family::of(&program, &script),
    );
    let _root = alone.members(["root"]);
    let mut members = tree.members(["one", "two", "three", "root"]);
    let [mut of_one, mut of_all] = [&alone, &tree].map(|f| {
        Setup::pid_without_stacks(f.root())
            .args(["--children", "-v"])
            .start()
    });
    assert_eq!(of_one.announced(), of_all.announced());
    for member in &mut members {
        member.say("alloc 4096 3");
    }
    let truth = members.each_mut().map(|m| m.status());
    let truth = truth.into_iter().reduce(|sum, truth| sum + truth).unwrap();
    of_all.stop().assert_totals(truth);
    of_one.stop();
}
