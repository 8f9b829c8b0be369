//! Asking the parser about files.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::de::DeserializeOwned;

use super::client::{Failure, Helper, HelperHost, Question};
use super::denylist::FileVersion;
use super::protocol::{FoundFunction, Request, decoded};
use super::{Lane, Role};
use crate::elf::{Headers, Refusal};
use crate::functions::{FunctionInFile, Rendezvous};
use crate::unwind::FunctionRules;
use gpuprobe_cuda::{FUNCTIONS, Layer};

/// Symbols of one function: no row has as many.
const MAX_SYMBOLS: usize = 1 << 16;

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

/// An attempt that came to nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed {
    /// It was the first, or there is no use in another.
    pub(crate) was_fresh: bool,
    /// It is the file's fault.
    pub(crate) is_fault: bool,
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

    /// Asks about the first of `files`; all of them are there to be read. The answer, if there is one
    /// that makes sense.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        files: &[&NumberedFile],
        request: &Request,
    ) -> Option<T> {
        self.answer(files, request, &|_| true).ok()?
    }

    /// The answer to a question about the first of `files`, if there is one that makes sense. If not, the file is
    /// not read any more.
    fn answer<T: DeserializeOwned>(
        &self,
        files: &[&NumberedFile],
        request: &Request,
        is_sane: &dyn Fn(&T) -> bool,
    ) -> Result<Option<T>, NotNow> {
        if !self.permits(files) {
            return Ok(None);
        }
        let question = Question::about(files, request);
        let mut connection = self.helper.connection(self.lane);
        let why = match self.helper.ask(self.lane, &mut connection, question) {
            Ok(answer) => match decoded(&answer.bytes).filter(is_sane) {
                Some(value) => return Ok(Some(value)),
                None => {
                    self.helper.replace(&mut connection);
                    "gives nothing that makes sense"
                }
            },
            Err(Failure::Died) => "ends whoever does",
            Err(Failure::TookTooLong) => "takes too long",
            Err(Failure::Waited | Failure::NotAsked) => return Err(NotNow),
        };
        if let Some(first) = files.first() {
            self.deny(first, why);
        }
        Ok(None)
    }

    /// Asks once, without an entry in the denylist: says whether it failed.
    pub(crate) fn attempt<T: DeserializeOwned>(
        &self,
        files: &[&NumberedFile],
        request: &Request,
    ) -> Result<Option<T>, Failed> {
        if !self.permits(files) {
            return Ok(None);
        }
        let question = Question::about(files, request);
        let mut connection = self.helper.connection(self.lane);
        let answer = self.helper.attempt(self.lane, &mut connection, question);
        let answer = answer.map_err(|(failure, was_fresh)| Failed {
            // What has taken too long does so again.
            was_fresh: was_fresh || failure == Failure::TookTooLong,
            is_fault: matches!(failure, Failure::Died | Failure::TookTooLong),
        })?;
        decoded(&answer.bytes).map(Some).ok_or_else(|| {
            self.helper.replace(&mut connection);
            Failed {
                was_fresh: true,
                is_fault: true,
            }
        })
    }

    fn permits(&self, files: &[&NumberedFile]) -> bool {
        let mut files = files.iter();
        files.all(|file| self.helper.permits(&file.origin.subject))
    }

    /// The file is done with: it is not to be kept open.
    pub(crate) fn close(&self, file: &NumberedFile) {
        let had = self.helper.connection(self.lane).files.remove(&file.number);
        if had {
            self.helper.tell(self.lane, &Request::Close(file.number));
        }
    }

    /// A file is not to be read any more.
    pub(crate) fn deny(&self, file: &NumberedFile, why: &str) {
        let FileVersion {
            subject,
            owner,
            path,
        } = &file.origin;
        let path = path.display();
        self.helper.deny(
            *subject,
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
        let found: Vec<FoundFunction> = self.about(file, path, |number| {
            Request::Functions(number, layer as u16)
        })?;
        let known = |found| known(found, layer);
        Ok(found.iter().filter_map(known).collect())
    }

    /// The rendezvous in the dynamic loader `file`; `None` if its symbols are not exported.
    ///
    /// # Errors
    /// As of [`Self::functions`].
    pub fn rendezvous(&self, file: &File, path: &Path) -> anyhow::Result<Option<Rendezvous>> {
        self.about(file, path, Request::Rendezvous)
    }

    /// Bytes of the device variable `name` in the program `file`.
    pub(crate) fn size_of_variable(&self, file: &NumberedFile, name: &str) -> Option<u64> {
        self.ask(&[file], &Request::Variable(file.number, name.to_owned()))?
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
        let request = request(numbered.number);
        let answer: Option<Result<T, String>> = self.answer(&[&numbered], &request, &|_| true)?;
        let answer = answer.ok_or_else(cannot)?;
        self.close(&numbered);
        answer.map_err(|why| anyhow::anyhow!("{why}"))
    }

    /// The headers of `file`.
    pub(crate) fn headers(&self, file: &NumberedFile) -> Result<Headers, Refusal> {
        let is_sane =
            |headers: &Result<Headers, Refusal>| headers.as_ref().map_or(true, Headers::are_sane);
        let answer = self.answer(&[file], &Request::Headers(file.number), &is_sane);
        answer
            .ok()
            .flatten()
            .unwrap_or_else(|| Err(Refusal::Damaged("it cannot be read".into())))
    }

    /// How to unwind in the function at `address` of `file`.
    pub(crate) fn rules(&self, file: &NumberedFile, address: u64) -> Option<FunctionRules> {
        self.ask(&[file], &Request::Rules(file.number, address))?
    }

    /// The mangled name of the function at `address` of `file`.
    pub(crate) fn symbol(&self, file: &NumberedFile, address: u64) -> Option<String> {
        self.ask(&[file], &Request::Symbol(file.number, address))?
    }
}

/// The function of the table that a reader has found.
pub(crate) fn known(found: &FoundFunction, layer: Layer) -> Option<FunctionInFile> {
    let row = FUNCTIONS.get(usize::from(found.row))?;
    let is_meant = row.layer == layer && found.symbol < MAX_SYMBOLS;
    Some(FunctionInFile {
        row: found.row,
        symbol: is_meant.then(|| row.symbols().nth(found.symbol))??,
        offset: found.offset,
        first: found.first,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::client::MAX_FILES;
    use super::*;
    use crate::instruction::FirstInstruction;

    #[test]
    fn functions_that_a_reader_names_are_those_of_the_table() {
        let row = FUNCTIONS.iter().position(|f| f.symbol == "cudaMalloc");
        let row = u16::try_from(row.unwrap_or(usize::MAX)).unwrap_or(u16::MAX);
        let sent = |row, symbol| FoundFunction {
            row,
            symbol,
            offset: 7,
            first: FirstInstruction::Stepped,
        };
        let expected = FunctionInFile {
            row,
            symbol: "cudaMalloc",
            offset: 7,
            first: FirstInstruction::Stepped,
        };
        assert_eq!(known(&sent(row, 0), Layer::Runtime), Some(expected));
        assert_eq!(known(&sent(row, 0), Layer::Driver), None);
        assert_eq!(known(&sent(row, MAX_SYMBOLS - 1), Layer::Runtime), None);
        assert_eq!(known(&sent(u16::MAX, 0), Layer::Runtime), None);
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
            (connection.files.len(), connection.generation)
        };
        assert_eq!(state(Lane::Quick), (1, 1));
        let failed = reader.attempt::<u64>(&[&file], &headers).unwrap_err();
        assert!(failed.was_fresh && failed.is_fault);
        assert_eq!(state(Lane::Quick), (0, 1));
        assert!(reader.headers(&file).is_ok());
        assert_eq!(state(Lane::Quick), (1, 2));
        // The other lane has files of its own.
        let slow = reader.slow();
        assert!(slow.symbol(&file, 0x1000).is_none());
        reader.close(&file);
        assert_eq!((state(Lane::Quick).0, state(Lane::Slow)), (0, (1, 1)));
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
