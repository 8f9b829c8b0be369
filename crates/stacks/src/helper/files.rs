//! Asking the parser about files.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::de::DeserializeOwned;

use super::client::{Failure, Helper, HelperHost, Subject};
use super::protocol::Request;
use super::{Lane, Role};
use crate::elf::{Headers, Refusal};
use crate::functions::{FunctionInFile, Rendezvous};
use crate::unwind::FunctionRules;
use gpuprobe_cuda::Layer;

/// Has files read by the parser, which may fail.
#[derive(Clone, Debug)]
pub struct FileReader {
    helper: Arc<Helper>,
    lane: Lane,
}

/// A file that could not be read now, but may be later.
#[derive(Clone, Copy, Debug)]
pub struct NotNow;

impl std::error::Error for NotNow {}

impl std::fmt::Display for NotNow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the process that reads files does not answer in time")
    }
}

/// A version of a file, and its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    subject: Subject,
    owner: u32,
    path: PathBuf,
}

impl FileVersion {
    /// Of an open file, which messages call `path`.
    fn of(file: &File, path: &Path) -> Option<Self> {
        let metadata = file.metadata().ok()?;
        Some(Self {
            subject: Subject::File {
                device: metadata.dev(),
                inode: metadata.ino(),
                size_bytes: metadata.size(),
                changed: (metadata.ctime(), metadata.ctime_nsec()),
            },
            owner: metadata.uid(),
            path: path.to_owned(),
        })
    }

    /// The user whose file it is.
    pub(crate) fn owner(&self) -> u32 {
        self.owner
    }
}

/// A file with the number by which readers know it.
#[derive(Clone, Debug)]
pub(crate) struct NumberedFile {
    pub(crate) number: u64,
    pub(crate) file: Arc<File>,
    pub(crate) origin: FileVersion,
}

impl NumberedFile {
    /// Gives `file`, which messages call `path`, a number; none if the system knows nothing of it.
    pub(crate) fn new(file: File, path: &Path) -> Option<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Some(Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            origin: FileVersion::of(&file, path)?,
            file: Arc::new(file),
        })
    }
}

impl FileReader {
    /// Starts a parser. Where that fails, it is tried again for each question.
    pub fn new(host: HelperHost) -> Self {
        Self {
            helper: Helper::start(Role::Parser, host),
            lane: Lane::Quick,
        }
    }

    /// The same parser, for questions whose answers may take seconds.
    pub fn slow(&self) -> Self {
        Self {
            lane: Lane::Slow,
            ..self.clone()
        }
    }

    /// Asks about the first of `files`; all of them are there to be read. The answer, if there is one.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        files: &[&NumberedFile],
        request: &Request,
    ) -> Option<T> {
        self.answer(files, request).ok()?
    }

    /// The answer to a question about the first of `files`. If there is none, the file is not read any more.
    fn answer<T: DeserializeOwned>(
        &self,
        files: &[&NumberedFile],
        request: &Request,
    ) -> Result<Option<T>, NotNow> {
        let answer = self.attempt(files, request);
        answer.or_else(|failure| match files.first() {
            Some(file) if failure != Failure::NotNow => {
                self.deny(file, failure);
                Ok(None)
            }
            _ => Err(NotNow),
        })
    }

    /// As [`Self::answer`], but another question about the file may be asked after a failure.
    pub(crate) fn attempt<T: DeserializeOwned>(
        &self,
        files: &[&NumberedFile],
        request: &Request,
    ) -> Result<Option<T>, Failure> {
        let mut origins = files.iter().map(|file| &file.origin);
        if !origins.all(|origin| self.helper.permits(&origin.subject)) {
            return Ok(None);
        }
        let answer = self.helper.ask(self.lane, files, request, None);
        answer.map(|(value, _)| Some(value))
    }

    /// The file is done with: it is not to be kept open.
    pub(crate) fn close(&self, file: &NumberedFile) {
        self.helper.close(self.lane, file.number);
    }

    /// A file is not to be read any more.
    pub(crate) fn deny(&self, file: &NumberedFile, failure: Failure) {
        let (path, owner) = (file.origin.path.display(), file.origin.owner);
        let why = match failure {
            Failure::TookTooLong => "takes too long",
            Failure::MadeNoSense => "gives nothing that makes sense",
            Failure::Died | Failure::NotNow => "ends whoever does",
        };
        self.helper.deny(
            file.origin.subject,
            format_args!("{path}, of user {owner}, is not read any more: reading it {why}"),
        );
    }

    /// The functions of `layer` in the table that `file` exports. Aliases of one address are one
    /// function, so that no call is seen twice.
    ///
    /// # Errors
    /// The file is no ELF file of this machine's architecture, or cannot be read; [`NotNow`] if that
    /// may be tried again.
    pub fn functions(
        &self,
        file: &File,
        path: &Path,
        layer: Layer,
    ) -> anyhow::Result<Vec<FunctionInFile>> {
        let mut found: Vec<FunctionInFile> = self.about(file, path, Request::Functions)?;
        found.retain(|function| function.is_of(layer));
        Ok(found)
    }

    /// The rendezvous in the dynamic loader `file`; `None` if its symbols are not exported.
    ///
    /// # Errors
    /// As of [`Self::functions`].
    pub fn rendezvous(&self, file: &File, path: &Path) -> anyhow::Result<Option<Rendezvous>> {
        self.about(file, path, Request::Rendezvous)
    }

    /// An answer that is a result, about a file that is asked about once.
    fn about<T: DeserializeOwned>(
        &self,
        file: &File,
        path: &Path,
        request: impl FnOnce(u64) -> Request,
    ) -> anyhow::Result<T> {
        let cannot = || anyhow::anyhow!("it cannot be read");
        let numbered = NumberedFile::new(file.try_clone()?, path).ok_or_else(cannot)?;
        let answer: Option<Result<T, String>> =
            self.answer(&[&numbered], &request(numbered.number))?;
        self.close(&numbered);
        answer.ok_or_else(cannot)?.map_err(anyhow::Error::msg)
    }

    /// The headers of `file`.
    pub(crate) fn headers(&self, file: &NumberedFile) -> Result<Headers, Refusal> {
        let answer = self.ask(&[file], &Request::Headers(file.number));
        answer.unwrap_or_else(|| Err(Refusal::Damaged("it cannot be read".into())))
    }

    /// How to unwind in the function at `address` of `file`.
    pub(crate) fn rules(&self, file: &NumberedFile, address: u64) -> Option<FunctionRules> {
        self.ask(&[file], &Request::Rules(file.number, address))?
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::client::MAX_FILES;
    use super::*;

    #[test]
    fn a_version_of_a_file_is_entered_once_and_others_are_not() {
        let file = tempfile::tempfile().unwrap();
        let version = || FileVersion::of(&file, Path::new("/x")).unwrap();
        let bad = version();
        assert_eq!(
            (&bad, bad.owner()),
            (&version(), file.metadata().unwrap().uid())
        );
        file.set_len(1).unwrap();
        assert_ne!(bad.subject, version().subject);
        let later = "the process that reads files does not answer in time";
        assert_eq!(NotNow.to_string(), later);
    }

    fn numbered() -> Option<NumberedFile> {
        let sample = crate::elf::sample::ElfSample::default().code(0x1000, &[0xc3]);
        NumberedFile::new(sample.file(), Path::new("/x"))
    }

    #[test]
    fn a_parser_is_replaced_after_an_answer_that_makes_no_sense() {
        let reader = FileReader::default();
        let file = numbered().unwrap();
        let headers = Request::Headers(file.number);
        let answer: Option<Result<Headers, Refusal>> = reader.attempt(&[&file], &headers).unwrap();
        assert!(matches!(answer, Some(Ok(_))));
        let state = |lane| {
            let connection = reader.helper.connection(lane);
            connection.files.len()
        };
        assert_eq!(state(Lane::Quick), 1);
        let failed = reader.attempt::<u64>(&[&file], &headers).unwrap_err();
        assert_eq!(failed, Failure::MadeNoSense);
        assert_eq!(state(Lane::Quick), 0);
        assert!(reader.headers(&file).is_ok());
        assert_eq!(state(Lane::Quick), 1);
        // The other lane has files of its own.
        let slow = reader.slow();
        assert!(slow.rules(&file, 0x1000).is_none());
        reader.close(&file);
        assert_eq!((state(Lane::Quick), state(Lane::Slow)), (0, 1));
        // One that gives no number is not asked again.
        assert_eq!(reader.ask::<u64>(&[&file], &headers), None);
        let denied = slow.attempt::<Result<Headers, Refusal>>(&[&file], &headers);
        assert!(denied.unwrap().is_none() && reader.headers(&file).is_err());
    }

    #[test]
    fn a_parser_has_a_limited_number_of_files() {
        let reader = FileReader::default();
        for (before, after) in [(MAX_FILES - 1, MAX_FILES), (MAX_FILES, 1)] {
            let file = numbered().unwrap();
            assert!(reader.headers(&file).is_ok());
            let others = (0..before as u64).map(|n| u64::MAX - n);
            reader.helper.connection(Lane::Quick).files = others.collect();
            assert!(reader.headers(&file).is_ok());
            assert_eq!(reader.helper.connection(Lane::Quick).files.len(), after);
        }
    }
}
