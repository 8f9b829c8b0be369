//! Owners of output files, and links and files that other users have planted in their place.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::process::{Command, Output};

use flate2::read::GzDecoder;
use tempfile::TempDir;

use crate::harness::gpuprobe::BINARY;
use crate::harness::promises::OthersFile;
use crate::harness::{Backend, OwnCopy, Setup, require_bpf};

/// The user who calls sudo, and a third one.
const USER: u32 = 12_345;
const OTHER: u32 = 65_534;

fn folder(owner: u32, mode: u32) -> TempDir {
    let folder = TempDir::new().unwrap();
    chown(folder.path(), Some(owner), None).unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
    folder
}

/// Runs gpuprobe as root, who was called by [`USER`] through sudo.
fn sudo(words: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    let sudo = command.args(words).env("SUDO_UID", USER.to_string());
    sudo.env("SUDO_GID", USER.to_string()).output().unwrap()
}

fn assert_done(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

fn assert_refused(output: &Output, why: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("gpuprobe: error: ") && said.contains(why),
        "{said}"
    );
}

#[test]
fn root_created_files_belong_to_the_user_who_called_sudo() {
    let copy = OwnCopy::for_everyone();
    for (folder, owner) in [
        (folder(USER, 0o700), USER),
        (folder(0, 0o1777), USER),
        // Where that user may not write.
        (folder(0, 0o700), 0),
        (folder(OTHER, 0o755), 0),
    ] {
        let assert_owned = |path: &Path| {
            let metadata = fs::symlink_metadata(path).unwrap();
            let ids = (metadata.uid(), metadata.gid());
            assert_eq!(ids, (owner, owner), "{}", path.display());
        };
        let path = |name: &str| folder.path().join(name);
        let text = |name: &str| path(name).to_str().unwrap().to_owned();
        let run = text("run.sqlite");
        let mut setup = Setup::command([copy.standin().program_text(Backend::Shared)])
            .on_stdout()
            .args(["--interval", "100ms", "-o", &text("reports")])
            .no_interval()
            .args(["--record", &run])
            .env("SUDO_UID", &USER.to_string())
            .env("SUDO_GID", &USER.to_string());
        for form in ["folded", "flamegraph", "pprof"] {
            setup = setup.args([format!("--{form}"), text(form)]);
        }
        let mut gpuprobe = setup.start();
        gpuprobe.talk.ready();
        gpuprobe.talk.say("alloc 4096 3");
        for suffix in ["", "-wal", "-shm"] {
            assert_owned(&path(&format!("run.sqlite{suffix}")));
        }
        gpuprobe.talk.done();
        assert_eq!(gpuprobe.exit_code(), 0, "{:#?}", gpuprobe.said());
        let said = gpuprobe.said().join("\n");
        assert!(!said.contains("warning"), "{said}");
        for words in [
            ["export", &run, "-o", &text("trace.json")].as_slice(),
            &["export", &run, "-o", &text("trace.json.gz")],
            &["export", &run, "--format", "tsv", "-o", &text("a/tables")],
            &["plot", &run, "-o", &text("plot.png")],
        ] {
            assert_done(&sudo(words));
        }
        let files = fs::read_dir(folder.path()).unwrap();
        let files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        assert_eq!(files.len(), 9, "{files:#?}");
        files.iter().for_each(|path| assert_owned(path));
        assert_owned(&path("a/tables/valid.tsv"));
    }
}

#[test]
fn root_nothing_is_written_through_what_others_have_planted() {
    require_bpf();
    let (shared, private) = (folder(0, 0o1777), TempDir::new().unwrap());
    let precious = private.path().join("precious");
    fs::write(&precious, "precious").unwrap();
    let unwritten = OthersFile::of(&precious);
    let export = private.path().join("export.sqlite");
    let packed = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/data/nsys-export-h200.sqlite.gz"
    );
    let mut packed = GzDecoder::new(File::open(packed).unwrap());
    std::io::copy(&mut packed, &mut File::create(&export).unwrap()).unwrap();
    let text = |name: &str| shared.path().join(name).to_str().unwrap().to_owned();
    let plant = |name: &str, target: &Path| {
        symlink(target, text(name)).unwrap();
        lchown(text(name), Some(OTHER), None).unwrap();
        text(name)
    };
    let (link, folder) = (plant("out.svg", &precious), plant("folder", private.path()));
    let (within, file) = (format!("{folder}/precious"), export.to_str().unwrap());
    for words in [
        ["--memleak", "-o", &link, "--", "true"].as_slice(),
        &["record", "-o", &format!("{folder}/new"), "--", "true"],
        &["report", file, "-o", &link],
        &["report", file, "-o", &within],
        &["report", file, "--folded", &link],
        &["report", file, "--flamegraph", &link],
        &["report", file, "--pprof", &link],
        &["export", file, "--format", "tsv", "-o", &folder],
        &["export", file, "-o", &link],
        &["plot", file, "-o", &link],
    ] {
        assert_refused(&sudo(words), "is a symbolic link of user 65534");
    }
    for suffix in ["-wal", "-shm", "-journal"] {
        let run = format!("run{suffix}.sqlite");
        let planted = plant(&format!("{run}{suffix}"), &precious);
        let recorded = sudo(&["record", "-o", &text(&run), "--", "true"]);
        assert_refused(&recorded, "which belongs to the recording");
        assert!(!Path::new(&text(&run)).exists() && Path::new(&planted).is_symlink());
    }
    unwritten.assert_unwritten();
    assert_eq!(fs::read_dir(private.path()).unwrap().count(), 2);
    // A pipe of root's, which that user may not open.
    for stdout in ["/dev/stdout", "/dev/fd/1"] {
        let output = sudo(&["report", file, "-o", stdout]);
        assert!(String::from_utf8_lossy(&output.stdout).contains("memory"));
    }
}
