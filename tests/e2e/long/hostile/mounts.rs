//! File systems served by users (FUSE).
//!
//! They need `/dev/fuse`, and the first one user namespaces: without these the tests fail with a
//! message.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::stat::{Mode, SFlag, mknod};
use tempfile::TempDir;

use super::watch::Watched;
use super::{Attacker, program, source};
use crate::harness::{
    Backend, Gpuprobe, OwnCopy, Setup, Workload, alone, copy_program, standin, wait_for,
};

pub(super) const USER: &str = "65534";

/// A FUSE server, and mount points that every user may enter.
pub(super) struct Served {
    folder: TempDir,
    program: PathBuf,
    /// The file that is served.
    library: PathBuf,
}

impl Served {
    /// Serves a copy of the stand-in's driver.
    pub(super) fn new() -> Self {
        let served = Self::of(&standin().path("libcuda.so.1"));
        // The build directory may be closed to other users.
        let library = served.folder.path().join("driver");
        copy_program(&served.library, &library);
        Self { library, ..served }
    }

    /// Serves `library`, with its inode and times.
    fn of(library: &Path) -> Self {
        assert!(fs::metadata("/dev/fuse").is_ok(), "there is no /dev/fuse");
        // Not below /tmp, which the test hides.
        let folder = TempDir::new_in("/var/tmp").unwrap();
        let everyone = || fs::Permissions::from_mode(0o777);
        fs::set_permissions(folder.path(), everyone()).unwrap();
        for name in ["served", "overlay", "empty"] {
            let inner = folder.path().join(name);
            fs::create_dir(&inner).unwrap();
            fs::set_permissions(&inner, everyone()).unwrap();
        }
        // That of the host, for any user: where no rule of udev says so, it is root's.
        let device = folder.path().join("device");
        let number = fs::metadata("/dev/fuse").unwrap().rdev();
        mknod(&device, SFlag::S_IFCHR, Mode::empty(), number).unwrap();
        fs::set_permissions(&device, fs::Permissions::from_mode(0o666)).unwrap();
        let program = program(folder.path(), "fuse", &[&source("fuse.c")]);
        let library = library.to_owned();
        Self {
            folder,
            program,
            library,
        }
    }

    pub(super) fn start(&self, wrapper: &[&str], uid: &str, in_overlay: bool) -> Attacker {
        let path = |name: &str| self.folder.path().join(name);
        let mut command = Command::new(wrapper[0]);
        command.args(&wrapper[1..]).arg(&self.program);
        command.env("FUSE_DEVICE", path("device"));
        command.args([&self.library, &path("served")]).arg(uid);
        if in_overlay {
            command.args([path("overlay"), path("empty")]);
        }
        Attacker::start(&mut command)
    }

    /// Where others find what a server has mounted, which only it has.
    pub(super) fn seen(&self, server: &Attacker) -> String {
        self.at("served", server)
    }

    fn at(&self, name: &str, server: &Attacker) -> String {
        let mounted = self.folder.path().join(name);
        format!("/proc/{}/root{}", server.child.pid(), mounted.display())
    }
}

pub(super) fn says(said: &[String], what: &str) -> bool {
    said.iter().any(|line| line.contains(what))
}

/// A user who is root in a namespace.
const IN_NAMESPACE: [&str; 8] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
];

pub(super) const LEFT_ALONE: &str = "are neither read nor probed";

#[test]
fn root_hanging_file_system_delays_no_other_process() {
    let _alone = alone();
    let served = Served::new();
    let mut attacker = served.start(&IN_NAMESPACE, "0", true);
    let victim = Workload::start(Backend::Shared);
    let setup = Setup::everything().args(["--stacks", "dwarf"]);
    let mut watched = Watched::start(setup, victim);
    watched.go_on();
    attacker.say("stop");
    for _ in 0..3 {
        attacker.say("look");
        watched.go_on();
    }
    // Processes that start later are discovered as usual.
    let late = Watched::start(
        Setup::everything().args(["--stacks", "dwarf"]),
        Workload::start(Backend::Shared),
    );
    for (watched, what) in [(watched, "watched"), (late, "late")] {
        let (_, said) = watched.end();
        assert!(says(&said, LEFT_ALONE), "{what}: {said:#?}");
    }
}

/// The same mount made by root on behalf of a user, as `fusermount` does.
pub(super) const OF_ROOTS: [&str; 2] = ["unshare", "--mount"];

fn probes(gpuprobe: &Gpuprobe) -> bool {
    let said = gpuprobe.stderr.so_far();
    says(&said, "libcuda.so.1 are probed")
}

#[test]
fn root_files_on_fuse_are_probed_only_with_the_option() {
    let _alone = alone();
    let served = Served::new();
    let is_probed = |uid: &str, arguments: &[&str]| {
        let mut attacker = served.start(&OF_ROOTS, uid, false);
        let mut gpuprobe = Setup::pid(attacker.child.pid())
            .args(arguments.iter().copied())
            .env("GPUPROBE_LOG", "info")
            .spawn();
        wait_for("an answer", || {
            let said = gpuprobe.stderr.so_far();
            (probes(&gpuprobe) || says(&said, LEFT_ALONE)).then_some(())
        });
        attacker.say("look");
        let is_probed = probes(&gpuprobe);
        gpuprobe.interrupt();
        gpuprobe.wait();
        is_probed
    };
    assert!(!is_probed(USER, &[]));
    assert!(is_probed(USER, &["--untrusted-mounts"]));
    assert!(is_probed("0", &[]), "it is root who serves it");
}

/// What tells files apart that are seen through overlays: inode, size and times.
fn identity(path: impl AsRef<Path>) -> [i64; 6] {
    let file = fs::metadata(path).unwrap();
    let [inode, size] = [file.ino(), file.size()].map(u64::cast_signed);
    let (changed, modified) = (file.ctime(), file.mtime());
    let [changed_ns, modified_ns] = [file.ctime_nsec(), file.mtime_nsec()];
    [inode, size, changed, changed_ns, modified, modified_ns]
}

#[test]
fn root_library_is_probed_beside_one_with_a_forged_identity() {
    let _alone = alone();
    let copy = OwnCopy::for_everyone();
    let library = copy.standin().path("libcuda.so.1");
    let served = Served::of(&library);
    let attacker = served.start(&IN_NAMESPACE, "0", true);
    let forged = format!("{}/libcuda.so.1", served.at("overlay", &attacker));
    assert_eq!(identity(&forged), identity(&library));
    // It has a higher PID than the attacker, whose file is found first.
    let victim = Workload::of(&copy, Backend::Driver);
    let mut watched = Watched::start(Setup::everything(), victim);
    watched.go_on();
    let (report, said) = watched.end();
    assert!(says(&said, LEFT_ALONE), "{said:#?}");
    report.assert_nothing_lost();
}
