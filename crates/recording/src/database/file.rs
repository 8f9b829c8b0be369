//! The file of a database: whether it is one, its size, and what to do about an error.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, bail};
use rusqlite::ErrorCode;

use crate::opening::{LOG, beside};
use gpuprobe_os::regular::open_input;

/// Checks that the file begins as an SQLite database does.
pub(super) fn check_magic(path: &Path) -> Result<()> {
    let shown = path.display();
    let file = open_input(path).with_context(|| format!("cannot open {shown}"))?;
    let mut magic = Vec::new();
    let read = file.take(16).read_to_end(&mut magic);
    if read.with_context(|| format!("cannot read {shown}"))? == 0 {
        bail!("{shown} is empty");
    }
    if magic != b"SQLite format 3\0" {
        bail!(
            "{shown} is not an SQLite database; a report of Nsight Systems becomes one with \
             `nsys export --type sqlite`"
        );
    }
    Ok(())
}

/// Adds the file and a remedy to an SQLite error.
pub(super) fn explain(path: &Path, error: rusqlite::Error) -> Error {
    let shown = path.display();
    let advice = match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => format!("{shown} is not an SQLite database"),
        Some(ErrorCode::DatabaseCorrupt) => {
            format!("{shown} is damaged or cut short; copy or export it again")
        }
        Some(ErrorCode::OperationInterrupted) => has_too_many_rows(path),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            format!("{shown} is locked by another program; let that end, or copy the file")
        }
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly) if log_of(path).exists() => format!(
            "{shown} was not closed, and its folder cannot be written to: copy it, with its -wal \
             file, to where you can write"
        ),
        Some(ErrorCode::TooBig) => format!("{shown} has a value of more than 64 MiB"),
        _ => format!("cannot read {shown}"),
    };
    Error::new(error).context(advice)
}

/// Says that reading does not end.
pub(super) fn has_too_many_rows(path: &Path) -> String {
    let shown = path.display();
    format!("{shown} is damaged: it has more rows than its size allows")
}

/// Its write-ahead log.
pub(super) fn log_of(path: &Path) -> PathBuf {
    beside(path, LOG)
}

/// Size of the file and its log, which may grow while they are read.
pub(super) fn bytes(path: &Path) -> u64 {
    let sizes = [path, &log_of(path)].map(|path| fs::metadata(path).map_or(0, |file| file.len()));
    sizes.iter().fold(0, |sum, size| sum.saturating_add(*size))
}
