//! A world-writable folder.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use flate2::read::GzDecoder;
use tempfile::TempDir;

use crate::harness::gpuprobe::BINARY;
use crate::harness::require_bpf;

/// An unprivileged user.
pub(super) const OTHER: u32 = 65_534;
/// The user who calls sudo.
pub(super) const USER: u32 = 12_345;
pub(super) const GROUP: u32 = 23_456;

/// A root-owned world-writable folder with sticky bit, as `/tmp` is, and an export to read.
pub(super) struct Shared {
    pub(super) folder: TempDir,
    pub(super) private: TempDir,
}

impl Shared {
    pub(super) fn new() -> Self {
        require_bpf();
        let folder = TempDir::new().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
        let private = TempDir::new().unwrap();
        let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        let packed = fs::File::open(packed.join("nsys-export-h200.sqlite.gz")).unwrap();
        let mut export = fs::File::create(private.path().join("export.sqlite")).unwrap();
        std::io::copy(&mut GzDecoder::new(packed), &mut export).unwrap();
        Self { folder, private }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A root-owned file that must stay unchanged.
    pub(super) fn precious(&self) -> PathBuf {
        let path = self.private.path().join("precious");
        fs::write(&path, "precious").unwrap();
        path
    }

    /// Creates a symbolic link owned by another user.
    pub(super) fn plant(&self, name: &str, target: &Path) -> PathBuf {
        let path = self.path(name);
        symlink(target, &path).unwrap();
        std::os::unix::fs::lchown(&path, Some(OTHER), Some(OTHER)).unwrap();
        path
    }

    pub(super) fn report(&self, arguments: &[&str]) -> Output {
        self.run("report", arguments)
    }

    pub(super) fn run(&self, action: &str, arguments: &[&str]) -> Output {
        self.run_on(
            &self.private.path().join("export.sqlite"),
            action,
            arguments,
        )
    }

    pub(super) fn run_on(&self, file: &Path, action: &str, arguments: &[&str]) -> Output {
        Command::new(BINARY)
            .arg(action)
            .arg(file)
            .args(arguments)
            .env_remove("SUDO_UID")
            .output()
            .unwrap()
    }
}

pub(super) fn assert_done(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

pub(super) fn assert_refused(output: &Output, why: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(
        said.starts_with("gpuprobe: error: ") && said.contains(why),
        "{said}"
    );
}

pub(super) fn owner(path: &Path) -> (u32, u32) {
    let metadata = fs::symlink_metadata(path).unwrap();
    (metadata.uid(), metadata.gid())
}
