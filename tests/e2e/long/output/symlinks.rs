//! Symbolic links, hard links and files of other users: no file is written or read through them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::shared::{GROUP, OTHER, Shared, USER, assert_done, assert_refused, owner};
use crate::harness::Setup;
use crate::harness::gpuprobe::{BINARY, NOTHING};
use crate::harness::promises::OthersFile;

#[test]
fn root_links_of_other_users_are_not_followed() {
    let shared = Shared::new();
    let precious = shared.precious();
    let link = shared.plant("out.svg", &precious);
    let link = link.to_str().unwrap();
    let of_file = "is a symbolic link of user 65534";
    for option in ["-o", "--folded", "--flamegraph", "--pprof"] {
        assert_refused(&shared.report(&[option, link]), of_file);
    }
    for action in ["plot", "export"] {
        assert_refused(&shared.run(action, &["-o", link]), of_file);
    }
    // As a folder of the path, too.
    let folder = shared.plant("folder", shared.private.path());
    let inside = folder.join("precious");
    assert_refused(&shared.report(&["-o", inside.to_str().unwrap()]), of_file);
    let folder = folder.to_str().unwrap();
    assert_refused(
        &shared.run("export", &["--format", "tsv", "-o", folder]),
        of_file,
    );
    // A dangling link creates no file.
    let nowhere = shared.plant("nowhere", &shared.private.path().join("new"));
    assert_refused(&shared.report(&["-o", nowhere.to_str().unwrap()]), of_file);
    assert!(!shared.private.path().join("new").exists());
    let mut gpuprobe = Setup::command(["true"])
        .on_stdout()
        .args(["-o", link])
        .spawn();
    assert_ne!(gpuprobe.exit_code(), 0);
    assert!(gpuprobe.said()[0].contains(of_file));
    assert_eq!(fs::read(&precious).unwrap(), b"precious");
    // The user's own links are followed.
    let own = shared.path("own");
    symlink(&precious, &own).unwrap();
    assert!(
        shared
            .report(&["-o", own.to_str().unwrap()])
            .status
            .success()
    );
    assert!(fs::read_to_string(&precious).unwrap().contains("memory"));
    // So are links in folders that no other user may write to, whoever owns them.
    let path = shared.private.path().join("link");
    symlink(&precious, &path).unwrap();
    std::os::unix::fs::lchown(&path, Some(OTHER), None).unwrap();
    assert!(
        shared
            .report(&["-o", path.to_str().unwrap()])
            .status
            .success()
    );
    let around = shared.path("around");
    symlink("around", &around).unwrap();
    assert_refused(
        &shared.report(&["-o", around.to_str().unwrap()]),
        "symbolic links",
    );
}

#[test]
fn root_links_in_folders_of_other_users_are_not_followed() {
    let shared = Shared::new();
    let precious = shared.precious();
    for (name, owner, group, mode) in [
        // Another user's own folder, and a folder that another user owns and shares.
        ("own", OTHER, OTHER, 0o755),
        ("sticky", OTHER, OTHER, 0o1777),
        ("open", OTHER, OTHER, 0o777),
        // A group-writable folder of root's.
        ("group", 0, GROUP, 0o2775),
    ] {
        let folder = shared.path(name);
        fs::create_dir(&folder).unwrap();
        chown(&folder, Some(owner), Some(group)).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
        let link = shared.plant(&format!("{name}/link"), &precious);
        let above = shared.plant(&format!("{name}/above"), shared.private.path());
        let within = above.join("precious");
        for path in [&link, &within] {
            for option in ["-o", "--flamegraph"] {
                let output = shared.report(&[option, path.to_str().unwrap()]);
                assert_refused(&output, "is a symbolic link of user 65534");
            }
        }
        let twice = folder.join("twice");
        fs::hard_link(&precious, &twice).unwrap();
        let output = shared.report(&["-o", twice.to_str().unwrap()]);
        assert_refused(&output, "hard link");
        // A new file, also beside one of another user, and the file that overwrites it.
        let new = folder.join("new");
        for _ in 0..2 {
            assert_done(&shared.report(&["-o", new.to_str().unwrap()]));
        }
        let theirs = folder.join("theirs");
        fs::write(&theirs, "").unwrap();
        chown(&theirs, Some(OTHER), None).unwrap();
        let output = shared.report(&["-o", theirs.to_str().unwrap()]);
        match name {
            "own" => assert_done(&output),
            _ => assert_refused(&output, "is a file of user 65534"),
        }
    }
    assert_eq!(fs::read(&precious).unwrap(), b"precious");
    // The user who called sudo has links in a folder that the user's group may write to.
    let home = TempDir::new().unwrap();
    let link = home.path().join("link");
    symlink(&precious, &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(USER), None).unwrap();
    chown(home.path(), Some(USER), Some(USER)).unwrap();
    fs::set_permissions(home.path(), Permissions::from_mode(0o775)).unwrap();
    let output = Command::new(BINARY)
        .arg("report")
        .arg(shared.private.path().join("export.sqlite"))
        .arg("-o")
        .arg(&link)
        .env("SUDO_UID", USER.to_string())
        .env("SUDO_GID", USER.to_string())
        .output()
        .unwrap();
    assert_done(&output);
    assert!(fs::read_to_string(&precious).unwrap().contains("memory"));
}

#[test]
fn root_reading_a_file_touches_nothing_beside_it() {
    let shared = Shared::new();
    let precious = shared.precious();
    let folder = shared.path("theirs");
    fs::create_dir(&folder).unwrap();
    chown(&folder, Some(OTHER), None).unwrap();
    for folder in [&folder, shared.folder.path()] {
        let file = folder.join("export.sqlite");
        let beside = |suffix: &str| folder.join(format!("export.sqlite{suffix}"));
        fs::copy(shared.private.path().join("export.sqlite"), &file).unwrap();
        let connection = rusqlite::Connection::open(&file).unwrap();
        let mode = connection.pragma_update(None, "journal_mode", "WAL");
        mode.and_then(|()| connection.close().map_err(|(_, error)| error))
            .unwrap();
        chown(&file, Some(OTHER), None).unwrap();
        // SQLite would truncate the file, and chown it to the database's owner.
        fs::hard_link(&precious, beside("-shm")).unwrap();
        for action in ["report", "export"] {
            let arguments: &[&str] = match action {
                "report" => &[],
                _ => &["-o", "/dev/null"],
            };
            assert_done(&shared.run_on(&file, action, arguments));
        }
        assert_eq!(fs::read(&precious).unwrap(), b"precious");
        assert_eq!(owner(&precious), (0, 0));
        // The database's own log would be missing.
        let log = beside("-wal");
        fs::write(&log, "log").unwrap();
        chown(&log, Some(OTHER), None).unwrap();
        assert_refused(&shared.run_on(&file, "report", &[]), "was not closed");
        // A third user's file is not its own.
        chown(&log, Some(OTHER - 1), None).unwrap();
        assert_done(&shared.run_on(&file, "report", &[]));
        assert_eq!(fs::read(&log).unwrap(), b"log");
        for suffix in ["", "-shm", "-wal"] {
            fs::remove_file(beside(suffix)).unwrap();
        }
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn root_files_of_other_users_are_not_written_to() {
    let shared = Shared::new();
    let theirs = shared.path("theirs");
    fs::write(&theirs, "theirs").unwrap();
    chown(&theirs, Some(OTHER), None).unwrap();
    let name = theirs.to_str().unwrap();
    assert_refused(&shared.report(&["-o", name]), "is a file of user 65534");
    assert_eq!(fs::read(&theirs).unwrap(), b"theirs");
    // Another hard link to a file of the user's.
    let precious = shared.precious();
    let linked = TempDir::new_in(shared.folder.path()).unwrap();
    fs::set_permissions(linked.path(), Permissions::from_mode(0o1777)).unwrap();
    let inside = linked.path().join("precious");
    fs::hard_link(&precious, &inside).unwrap();
    assert_refused(
        &shared.report(&["-o", inside.to_str().unwrap()]),
        "hard link",
    );
    assert_eq!(fs::read(&precious).unwrap(), b"precious");
    // Ordinary paths still work.
    let ours = shared.path("ours");
    for _ in 0..2 {
        assert!(
            shared
                .report(&["-o", ours.to_str().unwrap()])
                .status
                .success()
        );
    }
    for special in ["/dev/stdout", "/proc/self/fd/1", "/dev/fd/1"] {
        let output = shared.report(&["-o", special]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            String::from_utf8_lossy(&output.stdout).contains("memory"),
            "{special}: {said}"
        );
    }
    assert!(shared.report(&["-o", "/dev/null"]).status.success());
    let folder = shared.folder.path().to_str().unwrap();
    assert_refused(&shared.report(&["-o", folder]), "directory");
}

#[test]
fn root_recording_uses_no_leftover_database_files() {
    let shared = Shared::new();
    let record = |path: &Path| {
        Command::new(BINARY)
            .args(["record", "-o", path.to_str().unwrap(), "--", "true"])
            .env_remove("SUDO_UID")
            .output()
            .unwrap()
    };
    for suffix in ["-wal", "-shm", "-journal"] {
        let file = shared.path(&format!("run{suffix}.sqlite"));
        let planted = shared.plant(&format!("run{suffix}.sqlite{suffix}"), &shared.precious());
        assert_refused(
            &record(&file),
            &format!("{suffix}, which belongs to the recording"),
        );
        assert!(!file.exists(), "{suffix}");
        assert!(fs::symlink_metadata(planted).is_ok());
        // Neither will a file.
        let file = shared.path(&format!("again{suffix}.sqlite"));
        let planted = shared.path(&format!("again{suffix}.sqlite{suffix}"));
        fs::write(&planted, "theirs").unwrap();
        chown(&planted, Some(OTHER), None).unwrap();
        assert_refused(&record(&file), suffix);
        assert_eq!(fs::read(&planted).unwrap(), b"theirs");
    }
    let folder = shared.plant("folder", shared.private.path());
    assert_refused(&record(&folder.join("run.sqlite")), "symbolic link of user");
    assert!(!shared.private.path().join("run.sqlite").exists());
    let output = record(&shared.path("run.sqlite"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(NOTHING), "{said}");
    let left: Vec<_> = fs::read_dir(shared.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("run.sqlite"))
        .collect();
    assert_eq!(left, ["run.sqlite"]);
}

/// An access list lets another user write to a folder whose mode lets nobody.
#[test]
fn root_links_in_folders_with_an_access_list_are_not_followed() {
    // Version 2; for each of owner, user 65534, group, mask and others: tag, rights, id.
    const GIVE: &str = "import os, struct, sys\n\
        entries = [(1, 7, -1), (2, 7, 65534), (4, 0, -1), (16, 7, -1), (32, 0, -1)]\n\
        value = struct.pack('<I', 2) + b''.join(struct.pack('<HHi', *entry) for entry in entries)\n\
        os.setxattr(sys.argv[1], 'system.posix_acl_access', value)";
    let shared = Shared::new();
    let precious = shared.precious();
    fs::set_permissions(&precious, Permissions::from_mode(0o600)).unwrap();
    let folder = shared.path("listed");
    fs::create_dir(&folder).unwrap();
    let mut give = Command::new("python3");
    let given = give.args(["-c", GIVE]).arg(&folder).output().unwrap();
    let said = String::from_utf8_lossy(&given.stderr);
    assert!(given.status.success(), "no access lists here: {said}");
    let link = folder.join("out");
    let mut plant = Command::new("ln");
    let planted = plant.arg("-s").args([&precious, &link]).uid(OTHER).status();
    assert!(planted.unwrap().success(), "the list gives the right");
    let others = [&precious, &link].map(|path| OthersFile::of(path));
    for option in ["-o", "--folded", "--flamegraph", "--pprof"] {
        let output = shared.report(&[option, link.to_str().unwrap()]);
        assert_refused(&output, "is a symbolic link of user 65534");
    }
    others.iter().for_each(OthersFile::assert_unwritten);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "the link only");
}
