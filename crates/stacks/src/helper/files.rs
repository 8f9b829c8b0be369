//! Asking the parser about files.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

/// A version of a file. The owner of a file can set its modification time, but not the time of its last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileVersion {
    device: u64,
    inode: u64,
    size_bytes: u64,
    changed: (i64, i64),
}

impl FileVersion {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size_bytes: metadata.size(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Of a file to which more is written, under this number.
    pub(crate) fn growing(self, number: u64) -> Self {
        Self {
            size_bytes: number,
            changed: (0, 0),
            ..self
        }
    }
}

/// An open file, to have it read.
#[derive(Clone, Debug)]
pub(crate) struct OpenFile {
    pub(crate) file: Arc<File>,
    pub(crate) version: FileVersion,
    /// The user whose file it is.
    pub(crate) owner: u32,
    /// Its path in messages.
    pub(crate) path: PathBuf,
}

impl OpenFile {
    /// `None` if the system knows nothing of it.
    pub(crate) fn new(file: File, path: &Path) -> Option<Self> {
        let metadata = file.metadata().ok()?;
        Some(Self {
            version: FileVersion::of(&metadata),
            owner: metadata.uid(),
            file: Arc::new(file),
            path: path.to_owned(),
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
        files: &[&OpenFile],
        request: &Request,
    ) -> Option<T> {
        self.answer(files, request).ok()?
    }

    /// The answer to a question about the first of `files`. If there is none, the file, or its debugging information,
    /// is not read any more.
    pub(crate) fn answer<T: DeserializeOwned>(
        &self,
        files: &[&OpenFile],
        request: &Request,
    ) -> Result<Option<T>, NotNow> {
        let of_file = files.iter().map(|file| Subject::File(file.version));
        let is_in_detail = matches!(request, Request::Names(_, true));
        let of_details = files.first().filter(|_| is_in_detail);
        let of_details = of_details.map(|file| Subject::DebugInfo(file.version));
        let subjects: Vec<_> = of_details.into_iter().chain(of_file).collect();
        let files_of: Vec<_> = files.iter().map(|file| &*file.file).collect();
        let answer = self.helper.ask(self.lane, &subjects, &files_of, request);
        let why = match answer {
            Ok(answer) => return Ok(answer.map(|(value, _)| value)),
            Err(Failure::NotNow) => return Err(NotNow),
            Err(Failure::TookTooLong) => "takes too long",
            Err(Failure::MadeNoSense) => "gives nothing that makes sense",
            Err(Failure::Died) => "ends whoever does",
        };
        if let Some(OpenFile { path, owner, .. }) = files.first() {
            let path = path.display();
            match is_in_detail {
                true => tracing::warn!(
                    "{path}: cannot read its debug information; its functions are shown without source lines"
                ),
                false => tracing::warn!(
                    "{path}, of user {owner}, is not read any more: reading it {why}"
                ),
            }
        }
        Ok(None)
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
        let mut found: Vec<FunctionInFile> = self.about(file, path, &Request::Functions)?;
        found.retain(|function| function.is_of(layer));
        Ok(found)
    }

    /// The rendezvous in the dynamic loader `file`; `None` if its symbols are not exported.
    ///
    /// # Errors
    /// As of [`Self::functions`].
    pub fn rendezvous(&self, file: &File, path: &Path) -> anyhow::Result<Option<Rendezvous>> {
        self.about(file, path, &Request::Rendezvous)
    }

    /// An answer that is a result.
    fn about<T: DeserializeOwned>(
        &self,
        file: &File,
        path: &Path,
        request: &Request,
    ) -> anyhow::Result<T> {
        let cannot = || anyhow::anyhow!("it cannot be read");
        let file = OpenFile::new(file.try_clone()?, path).ok_or_else(cannot)?;
        let answer: Option<Result<T, String>> = self.answer(&[&file], request)?;
        answer.ok_or_else(cannot)?.map_err(anyhow::Error::msg)
    }

    /// The headers of `file`.
    pub(crate) fn headers(&self, file: &OpenFile) -> Result<Headers, Refusal> {
        let answer = self.ask(&[file], &Request::Headers);
        answer.unwrap_or_else(|| Err(Refusal::Damaged("it cannot be read".into())))
    }

    /// How to unwind in the function at `address` of `file`.
    pub(crate) fn rules(&self, file: &OpenFile, address: u64) -> Option<FunctionRules> {
        self.ask(&[file], &Request::Rules(address))?
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_version_of_a_file_is_another_after_a_change() {
        let file = tempfile::tempfile().unwrap();
        let version = || FileVersion::of(&file.metadata().unwrap());
        let before = version();
        assert_eq!(before, version());
        file.set_len(1).unwrap();
        assert_ne!(before, version());
        assert_eq!(before.growing(7), version().growing(7));
        assert_ne!(before.growing(7), version().growing(8));
        let later = "the process that reads files does not answer in time";
        assert_eq!(NotNow.to_string(), later);
    }

    fn file() -> OpenFile {
        let sample = crate::elf::sample::ElfSample::default().code(0x1000, &[0xc3]);
        OpenFile::new(sample.file(), Path::new("/x")).unwrap()
    }

    #[test]
    fn a_parser_is_replaced_after_an_answer_that_makes_no_sense() {
        let reader = FileReader::default();
        let (file, other) = (file(), file());
        assert!(reader.headers(&file).is_ok());
        assert_eq!(reader.ask::<u64>(&[&file], &Request::Headers), None);
        // It is not asked again, and others are.
        let slow = reader.slow();
        let denied = slow.answer::<Result<Headers, Refusal>>(&[&file], &Request::Headers);
        assert!(denied.unwrap().is_none() && reader.headers(&file).is_err());
        assert!(reader.headers(&other).is_ok() && slow.rules(&other, 0x1000).is_none());
        let both = slow.answer::<u32>(&[&other, &file], &Request::Headers);
        assert!(both.unwrap().is_none() && reader.headers(&other).is_ok());
    }

    #[test]
    fn debugging_information_that_cannot_be_read_is_no_fault_of_the_rest() {
        let reader = FileReader::default();
        let file = file();
        let names = |with_details| {
            let request = Request::Names(0x1000, with_details);
            reader
                .answer::<(u64, u64)>(&[&file, &file], &request)
                .unwrap()
        };
        // An answer of another type.
        assert_eq!(names(true), None);
        assert!(reader.headers(&file).is_ok());
        assert_eq!(names(false), None);
        assert!(reader.headers(&file).is_err());
    }
}
