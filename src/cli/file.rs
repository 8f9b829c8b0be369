//! Files whose names were left out.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::error::ErrorKind;

use super::wrong;
use gpuprobe_analysis::NEWEST;
use gpuprobe_os::say;

/// The file that was named, or else the newest recording in the current folder, with a message; exits if there is none.
pub(super) fn or_newest(named: PathBuf) -> PathBuf {
    if named != Path::new(NEWEST) {
        return named;
    }
    let found = newest(Path::new("."));
    let (file, others) =
        found.unwrap_or_else(|why| wrong(ErrorKind::MissingRequiredArgument, &why));
    let among = match others {
        0 => String::new(),
        1 => ", the newer of 2 recordings here".to_owned(),
        others => format!(", the newest of {} recordings here", others + 1),
    };
    say(format_args!("reading {}{among}", file.display()));
    file
}

/// The newest recording in `folder` whose name was invented, and how many others there are.
///
/// # Errors
/// Says that there is none, or that the folder cannot be read.
fn newest(folder: &Path) -> Result<(PathBuf, usize), String> {
    let entries = fs::read_dir(folder).map_err(|error| {
        format!("no FILE is given, and this folder cannot be read ({error}): give FILE")
    })?;
    let mut found: Vec<_> = entries.filter_map(recording).collect();
    found.sort();
    let (_, newest) = found.pop().ok_or(
        "no FILE is given, and there is no gpuprobe-*.sqlite in this folder: give FILE, or make one \
         with `gpuprobe record -- COMMAND`",
    )?;
    Ok((newest.into(), found.len()))
}

/// When a recording in a folder was changed, and its name; one that is removed meanwhile is none.
fn recording(entry: io::Result<DirEntry>) -> Option<(SystemTime, OsString)> {
    let entry = entry.ok()?;
    let name = entry.file_name();
    let bytes = name.as_encoded_bytes();
    let is_ours = bytes.starts_with(b"gpuprobe-") && bytes.ends_with(b".sqlite");
    let status = entry.metadata().ok()?;
    (is_ours && status.is_file()).then_some((status.modified().ok()?, name))
}

/// A picture of `file` in the current folder, of a name that nothing there has.
pub(super) fn picture_of(file: &Path) -> PathBuf {
    let stem = file.file_stem().unwrap_or(OsStr::new("gpuprobe"));
    let numbered = |number: u32| {
        let mut name = stem.to_owned();
        if number > 1 {
            name.push(format!("-{number}"));
        }
        name.push(".svg");
        PathBuf::from(name)
    };
    let mut free = (1..)
        .map(numbered)
        .filter(|path| fs::symlink_metadata(path).is_err());
    free.next().unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_newest_recording_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let none = newest(folder.path()).unwrap_err();
        assert!(none.contains("gpuprobe-*.sqlite"), "{none}");
        let old = SystemTime::UNIX_EPOCH;
        for (name, age_s) in [
            ("gpuprobe-a-1.sqlite", 10),
            ("gpuprobe-b-2.sqlite", 30),
            ("gpuprobe-c-3.sqlite", 20),
            ("gpuprobe-d.svg", 40),
            ("other.sqlite", 50),
        ] {
            let file = File::create(folder.path().join(name)).unwrap();
            file.set_modified(old + Duration::from_secs(age_s)).unwrap();
        }
        fs::create_dir(folder.path().join("gpuprobe-folder.sqlite")).unwrap();
        let found = newest(folder.path()).unwrap();
        assert_eq!(found, (PathBuf::from("gpuprobe-b-2.sqlite"), 2));
    }
}
