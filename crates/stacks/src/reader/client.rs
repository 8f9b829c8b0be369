//! Asking a reader.

mod state;

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::de::DeserializeOwned;

use super::denylist::{FileDenylist, FileVersion};
use super::link::ReaderProcess;
use super::protocol::{ReaderRequest, SentFunction};
use super::{ReaderHost, ReaderKind};
use crate::elf::{Headers, Refusal};
use crate::functions::{FunctionInFile, Rendezvous};
use crate::unwind::FunctionRules;
use gpuprobe_cuda::{FUNCTIONS, Layer};

/// Files that a reader has open.
const MAX_FILES: usize = 1024;
/// Symbols of one function: no row has as many.
const MAX_SYMBOLS: usize = 1 << 16;

/// Reads files, by way of a process that may fail.
#[derive(Clone, Debug)]
pub struct FileReader(Arc<Mutex<ClientState>>);

#[derive(Debug)]
struct ClientState {
    kind: ReaderKind,
    place: ReaderHost,
    link: Option<ReaderProcess>,
    /// The files that it has, by their numbers.
    has: HashSet<u64>,
    generation: u64,
    denylist: FileDenylist,
    /// The last question was not answered, which is no fault of the file's.
    has_waited: bool,
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
    /// Starts one. Where that fails, it is tried again for each question.
    pub fn new(kind: ReaderKind, place: ReaderHost) -> Self {
        let mut inner = ClientState {
            kind,
            place,
            link: None,
            has: HashSet::new(),
            generation: 0,
            denylist: FileDenylist::new(),
            has_waited: false,
        };
        if let Err(error) = inner.link() {
            tracing::debug!("no process that reads: {error}");
        }
        Self(Arc::new(Mutex::new(inner)))
    }

    fn inner(&self) -> MutexGuard<'_, ClientState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks about the first of `files`; all of them are there to be read. The answer, if there is one
    /// that makes sense.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        files: &[&NumberedFile],
        request: &ReaderRequest,
    ) -> Option<T> {
        self.inner().ask(files, request, None, &|_| true)
    }

    /// The same, of an answer that is checked.
    fn ask_for<T: DeserializeOwned>(
        &self,
        file: &NumberedFile,
        request: &ReaderRequest,
        is_sane: &dyn Fn(&T) -> bool,
    ) -> Option<T> {
        self.inner().ask(&[file], request, None, is_sane)
    }

    /// The same, without a second attempt, and without an entry in the denylist: says whether it failed.
    pub(crate) fn attempt<T: DeserializeOwned>(
        &self,
        files: &[&NumberedFile],
        request: &ReaderRequest,
    ) -> Result<Option<T>, Failed> {
        self.inner().attempt(files, request)
    }

    /// Sends `file` with a question about process `pid` whose file it is.
    pub(crate) fn ask_with<T: DeserializeOwned>(
        &self,
        file: &NumberedFile,
        request: &ReaderRequest,
    ) -> Option<T> {
        self.inner()
            .ask(&[file], request, Some(&file.file), &|_| true)
    }

    /// Says something that is not answered.
    pub(crate) fn tell(&self, request: &ReaderRequest) {
        let mut inner = self.inner();
        if let (Some(link), Ok(bytes)) = (&inner.link, serde_json::to_vec(request))
            && link.tell(&bytes, None).is_err()
        {
            inner.drop_link();
        }
    }

    /// The file is done with: it is not to be kept open.
    pub(crate) fn close(&self, file: &NumberedFile) {
        let had = self.inner().has.remove(&file.number);
        if had {
            self.tell(&ReaderRequest::Close(file.number));
        }
    }

    /// A file is not to be read any more.
    pub(crate) fn deny(&self, file: &NumberedFile, why: &str) {
        self.inner().denylist.enter(&file.origin, why);
    }

    /// How many times it was started: what it was given before is not there any more.
    pub(crate) fn generation(&self) -> u64 {
        self.inner().generation
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
        let found: Vec<SentFunction> = self.about(file, path, |number| {
            ReaderRequest::Functions(number, layer as u16)
        })?;
        let known = |found| known(found, layer);
        Ok(found.iter().filter_map(known).collect())
    }

    /// The rendezvous in the dynamic loader `file`; `None` if its symbols are not exported.
    ///
    /// # Errors
    /// As of [`Self::functions`].
    pub fn rendezvous(&self, file: &File, path: &Path) -> anyhow::Result<Option<Rendezvous>> {
        self.about(file, path, ReaderRequest::Rendezvous)
    }

    /// Bytes of the device variable `name` in the program `file`.
    pub(crate) fn size_of_variable(&self, file: &NumberedFile, name: &str) -> Option<u64> {
        self.ask(
            &[file],
            &ReaderRequest::Variable(file.number, name.to_owned()),
        )?
    }

    /// An answer that is a result, about a file that is asked about once.
    fn about<T: DeserializeOwned>(
        &self,
        file: &File,
        path: &Path,
        request: impl FnOnce(u64) -> ReaderRequest,
    ) -> anyhow::Result<T> {
        let cannot = || anyhow::anyhow!("it cannot be read");
        let numbered = NumberedFile::new(file.try_clone()?, path).ok_or_else(cannot)?;
        let answer: Option<Result<T, String>> = self.ask(&[&numbered], &request(numbered.number));
        let has_waited = std::mem::take(&mut self.inner().has_waited);
        let answer = answer.ok_or_else(|| match has_waited {
            true => anyhow::Error::new(NotNow),
            false => cannot(),
        })?;
        self.close(&numbered);
        answer.map_err(|why| anyhow::anyhow!("{why}"))
    }

    /// The headers of `file`.
    pub(crate) fn headers(&self, file: &NumberedFile) -> Result<Headers, Refusal> {
        let request = ReaderRequest::Headers(file.number);
        let answer: Option<Result<Headers, Refusal>> =
            self.ask_for(file, &request, &|headers: &Result<Headers, Refusal>| {
                headers.as_ref().map_or(true, Headers::are_sane)
            });
        answer.unwrap_or_else(|| Err(Refusal::Damaged("it cannot be read".into())))
    }

    /// How to unwind in the function at `address` of `file`.
    pub(crate) fn rules(&self, file: &NumberedFile, address: u64) -> Option<FunctionRules> {
        self.ask(&[file], &ReaderRequest::Rules(file.number, address))?
    }

    /// The mangled name of the function at `address` of `file`.
    pub(crate) fn symbol(&self, file: &NumberedFile, address: u64) -> Option<String> {
        self.ask(&[file], &ReaderRequest::Symbol(file.number, address))?
    }
}

/// The function of the table that a reader has found.
pub(crate) fn known(found: &SentFunction, layer: Layer) -> Option<FunctionInFile> {
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
mod tests {
    use super::*;
    use crate::instruction::FirstInstruction;

    #[test]
    fn functions_that_a_reader_names_are_those_of_the_table() {
        let row = FUNCTIONS.iter().position(|f| f.symbol == "cudaMalloc");
        let row = u16::try_from(row.unwrap_or(usize::MAX)).unwrap_or(u16::MAX);
        let sent = |row, symbol| SentFunction {
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
        let file = gpuprobe_os::bounded::file_of(&sample.bytes()).ok()?;
        NumberedFile::new(file, Path::new("/x"))
    }

    #[test]
    fn a_reader_is_started_anew_after_an_answer_that_makes_no_sense() -> Result<(), Failed> {
        let reader = FileReader::default();
        let failed = Failed {
            was_fresh: false,
            is_fault: false,
        };
        let file = numbered().ok_or(failed)?;
        let headers = ReaderRequest::Headers(file.number);
        let begun = reader.generation();
        let answer: Option<Result<Headers, Refusal>> = reader.attempt(&[&file], &headers)?;
        assert!(matches!(answer, Some(Ok(_))) && reader.inner().has.len() == 1);
        assert_eq!(reader.generation(), begun);
        let failed = reader.attempt::<u64>(&[&file], &headers);
        assert!(failed.is_err_and(|failed| failed.was_fresh && failed.is_fault));
        assert!(reader.inner().link.is_none() && reader.inner().has.is_empty());
        assert!(
            reader
                .ask::<serde_json::Value>(&[&file], &headers)
                .is_some()
        );
        assert_eq!(reader.generation(), begun + 1);
        reader.close(&file);
        assert!(reader.inner().has.is_empty());
        // One that gives no number is not asked again.
        assert_eq!(reader.ask::<u64>(&[&file], &headers), None);
        assert!(
            reader
                .attempt::<serde_json::Value>(&[&file], &headers)?
                .is_none()
        );
        Ok(())
    }

    #[test]
    fn a_reader_has_a_limited_number_of_files() {
        let reader = FileReader::default();
        for (before, after) in [(MAX_FILES - 1, MAX_FILES), (MAX_FILES, 1)] {
            let Some(file) = numbered() else { continue };
            let others = (0..before as u64).map(|n| u64::MAX - n);
            reader.inner().has = others.collect();
            assert!(reader.headers(&file).is_ok());
            assert_eq!(reader.inner().has.len(), after);
        }
        let Some(file) = numbered() else { return };
        reader.deny(&file, "is bad");
        assert!(reader.headers(&file).is_err() && reader.symbol(&file, 0x1000).is_none());
    }
}
