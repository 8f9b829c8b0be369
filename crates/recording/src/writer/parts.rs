//! Files of a recording that continues in another file when one is full.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Existing files, oldest first.
#[derive(Debug)]
pub(super) struct Parts {
    first: Option<PathBuf>,
    whole: VecDeque<PathBuf>,
    begun: u32,
    may_be: u32,
}

impl Parts {
    /// Limits the number of files to `files`.
    pub(super) fn new(files: u32) -> Self {
        Self {
            first: None,
            whole: VecDeque::new(),
            begun: 0,
            may_be: files,
        }
    }

    /// The name of the file after `full`; removes the oldest files beyond the limit.
    pub(super) fn after(&mut self, full: PathBuf) -> PathBuf {
        self.begun += 1;
        let first = self.first.get_or_insert_with(|| full.clone());
        let next = numbered(first, self.begun);
        self.whole.push_back(full);
        while self.whole.len() >= self.may_be as usize
            && let Some(oldest) = self.whole.pop_front()
        {
            if let Err(error) = fs::remove_file(&oldest) {
                tracing::warn!("cannot remove {}: {error}", oldest.display());
            }
        }
        next
    }
}

/// `run.sqlite` becomes `run.3.sqlite`.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{number}"));
    if let Some(extension) = path.extension() {
        name.push(OsString::from("."));
        name.push(extension);
    }
    path.with_file_name(name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_file_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = folder.path().join("run.sqlite");
        let mut parts = Parts::new(3);
        for _ in 0..5 {
            fs::write(&file, "").unwrap();
            file = parts.after(file);
        }
        let mut left: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .flatten()
            .map(|f| f.file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["run.3.sqlite", "run.4.sqlite"]);
        assert_eq!(file.file_name().unwrap(), "run.5.sqlite");
        assert_eq!(numbered(Path::new("/a.b/run"), 7), Path::new("/a.b/run.7"));
    }
}
