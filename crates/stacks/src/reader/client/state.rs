//! The link to the reader process, and what is known about its files.

use super::super::link::{Failure, ReaderProcess};
use super::super::protocol::ReaderRequest;
use super::{ClientState, Failed, MAX_FILES, NumberedFile};
use serde::de::DeserializeOwned;
use std::fs::File;

impl ClientState {
    pub(super) fn link(&mut self) -> std::io::Result<&mut ReaderProcess> {
        match &mut self.link {
            Some(link) => Ok(link),
            link => {
                self.generation += 1;
                Ok(link.insert(ReaderProcess::start(self.kind, self.place)?))
            }
        }
    }

    pub(super) fn drop_link(&mut self) {
        self.link = None;
        self.has.clear();
    }

    pub(super) fn ask<T: DeserializeOwned>(
        &mut self,
        files: &[&NumberedFile],
        request: &ReaderRequest,
        with: Option<&File>,
        is_sane: &dyn Fn(&T) -> bool,
    ) -> Option<T> {
        self.has_waited = false;
        let first = files.first()?;
        let may = files.iter().all(|file| self.denylist.permits(&file.origin));
        may.then_some(())?;
        let mut answer = self.exchange(files, request, with);
        // One that has answered others may have taken its memory for them.
        if matches!(answer, Err((Failure::Died, false))) {
            answer = self.exchange(files, request, with);
        }
        let why = match answer {
            Ok(bytes) => {
                let value = serde_json::from_slice(&bytes).ok();
                match value.filter(is_sane) {
                    Some(value) => return Some(value),
                    None => "gives nothing that makes sense",
                }
            }
            Err((Failure::Died, _)) => "ends whoever does",
            Err((Failure::TookTooLong, _)) => "takes too long",
            // No fault of the file's.
            Err((Failure::Waited, _)) => {
                self.has_waited = true;
                return None;
            }
        };
        self.drop_link();
        self.denylist.enter(&first.origin, why);
        None
    }

    pub(super) fn attempt<T: DeserializeOwned>(
        &mut self,
        files: &[&NumberedFile],
        request: &ReaderRequest,
    ) -> Result<Option<T>, Failed> {
        if !files.iter().all(|file| self.denylist.permits(&file.origin)) {
            return Ok(None);
        }
        let bytes = self.exchange(files, request, None);
        let bytes = bytes.map_err(|(failure, was_fresh)| Failed {
            // What has taken too long does so again.
            was_fresh: was_fresh || failure == Failure::TookTooLong,
            is_fault: failure != Failure::Waited,
        })?;
        serde_json::from_slice(&bytes).map(Some).map_err(|_| {
            self.drop_link();
            Failed {
                was_fresh: true,
                is_fault: true,
            }
        })
    }

    /// Gives it the files that it does not have, and asks. A failure comes with whether nothing had
    /// been asked of it before.
    fn exchange(
        &mut self,
        files: &[&NumberedFile],
        request: &ReaderRequest,
        with: Option<&File>,
    ) -> Result<Vec<u8>, (Failure, bool)> {
        self.give(files, request, with).map_err(|failure| {
            let is_fresh = self.link.as_ref().is_none_or(|link| link.answers == 0);
            self.drop_link();
            (failure, is_fresh)
        })
    }

    fn give(
        &mut self,
        files: &[&NumberedFile],
        request: &ReaderRequest,
        with: Option<&File>,
    ) -> Result<Vec<u8>, Failure> {
        let encoded =
            |request: &ReaderRequest| serde_json::to_vec(request).map_err(|_| Failure::Waited);
        self.link().map_err(|error| {
            tracing::debug!("no process that reads: {error}");
            Failure::Waited
        })?;
        let Some(link) = &mut self.link else {
            return Err(Failure::Waited);
        };
        if self.has.len() + files.len() > MAX_FILES {
            self.has.clear();
            link.tell(&encoded(&ReaderRequest::CloseAll)?, None)?;
        }
        if with.is_none() {
            for file in files {
                if self.has.insert(file.number) {
                    let open = encoded(&ReaderRequest::Open(file.number))?;
                    link.tell(&open, Some(&file.file))?;
                }
            }
        }
        Ok(link.ask(&encoded(request)?, with, false)?.bytes)
    }
}
