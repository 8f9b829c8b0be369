//! Readers on threads, for tests and benchmarks, and for files that are nobody else's: the default values of
//! what asks them.

use super::serve_on;
use crate::AddressSpaces;
use crate::reader::{FileReader, Opener, ProcessReader, ReaderHost, ReaderKind};
use crate::store::StackStore;
use crate::symbols::HostFiles;

impl Default for ReaderHost {
    fn default() -> Self {
        Self::Thread(serve_on)
    }
}

impl Default for FileReader {
    fn default() -> Self {
        Self::new(ReaderKind::Functions, ReaderHost::default())
    }
}

impl Default for ProcessReader {
    fn default() -> Self {
        Self::new(ReaderHost::default())
    }
}

impl Default for Opener {
    fn default() -> Self {
        Self::new(ReaderHost::default())
    }
}

impl Default for AddressSpaces {
    fn default() -> Self {
        Self::new(FileReader::default(), ProcessReader::default())
    }
}

impl Default for HostFiles {
    fn default() -> Self {
        Self::new(FileReader::default())
    }
}

impl Default for StackStore {
    fn default() -> Self {
        Self::new(false, FileReader::default(), ProcessReader::default())
    }
}
