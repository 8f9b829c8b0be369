//! Scanning processes for libraries to attach to.

use std::time::Instant;

use anyhow::{Error, Result};

use super::super::scanned::ScanResult;
use super::attach::is_foreign;
use super::{Settled, Tracer};
use crate::host::LibraryRole;
use crate::host::process::{Mapped, MappedFiles, MapsStep};
use crate::probe::AttachId;
use gpuprobe_os::mounts;

/// A process scan, which may take several steps.
#[derive(Debug)]
pub struct ProcessScan {
    /// Process id of the scanned process.
    pub pid: u32,
    /// Result of the steps so far.
    pub scanned: ScanResult,
    purpose: ScanPurpose,
    mapped: MappedFiles,
    /// The request to attach that it waits for, and the file.
    waits_for: Option<(AttachId, Mapped)>,
    /// Number of probed files when the scan began, or began again.
    probed: usize,
}

/// Purpose of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanPurpose {
    /// To attach to what the process has mapped.
    Attach {
        /// It runs meanwhile: calls may be missed.
        late: bool,
    },
    /// To find the probed files that it uses.
    Uses,
}

/// How far a scan has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanProgress {
    /// The time is over; the scan can be continued.
    OutOfTime,
    /// It waits for the answer to a request to attach.
    Waiting(AttachId),
    /// It is complete.
    Done,
}

impl ProcessScan {
    /// Whether it waits for an answer.
    pub fn is_waiting(&self) -> bool {
        self.waits_for.is_some()
    }
}

impl Tracer {
    /// Begins to scan process `pid`.
    ///
    /// # Errors
    /// Returns an error if the process has ended or cannot be inspected (another user's).
    pub fn begin_scan(&self, pid: u32, purpose: ScanPurpose) -> Result<ProcessScan> {
        Ok(ProcessScan {
            pid,
            scanned: ScanResult::default(),
            purpose,
            mapped: MappedFiles::at(pid)?,
            waits_for: None,
            probed: self.files.probed(),
        })
    }

    /// Continues a scan until `until`, or until it waits for an attach.
    ///
    /// # Errors
    /// Returns an error if the process has ended.
    pub fn continue_scan(
        &mut self,
        scan: &mut ProcessScan,
        until: Option<Instant>,
    ) -> Result<ScanProgress> {
        loop {
            if let Some((id, _)) = &scan.waits_for {
                return Ok(ScanProgress::Waiting(*id));
            }
            match scan.mapped.on(until)? {
                MapsStep::Found(mapped) => self.note_found(scan, mapped),
                MapsStep::OutOfTime => return Ok(ScanProgress::OutOfTime),
                MapsStep::End if self.files.probed() == scan.probed => {
                    return Ok(ScanProgress::Done);
                }
                // Files mapped while the loader was being attached are found now.
                MapsStep::End => {
                    scan.probed = self.files.probed();
                    scan.mapped = MappedFiles::at(scan.pid)?;
                }
            }
            if until.is_some_and(|until| Instant::now() > until) && !scan.is_waiting() {
                return Ok(ScanProgress::OutOfTime);
            }
        }
    }

    /// Tells a scan of the answer to a request, if it waits for that.
    pub fn resume(&mut self, scan: &mut ProcessScan, settled: &mut Settled) {
        let waited = scan.waits_for.take_if(|(id, _)| *id == settled.id);
        let Some((_, mapped)) = waited else { return };
        match std::mem::replace(&mut settled.result, Ok(0)) {
            Ok(functions) => {
                settled.result = Ok(functions);
                scan.scanned.functions += functions;
                self.note_found(scan, mapped);
            }
            Err(error) => self.note_failed(&mapped, error, &mut scan.scanned),
        }
    }

    /// Notes a file that the process has mapped; requests to attach to it, unless that was done.
    fn note_found(&mut self, scan: &mut ProcessScan, mapped: Mapped) {
        if let LibraryRole::Cuda(layer) = mapped.role {
            self.note_user(scan.pid);
            self.loaded.add(layer);
        }
        if self.probes(mapped.role) && !self.files.have_probed(&mapped) {
            match self.attach_mapped(&mapped, scan.purpose) {
                Ok(Some(id)) => {
                    let is_late = scan.purpose == ScanPurpose::Attach { late: true };
                    if is_late && matches!(mapped.role, LibraryRole::Cuda(_)) {
                        // Again once it is attached: calls may be seen before the answer is.
                        self.probe.attached_late(scan.pid);
                    }
                    scan.waits_for = Some((id, mapped));
                    return;
                }
                Ok(None) => {}
                Err(error) => self.note_failed(&mapped, error, &mut scan.scanned),
            }
        }
        let used = self.files.note_user(&mapped, scan.pid);
        scan.scanned.uses.extend(used);
    }

    /// Requests to attach to a mapped file. Returns the request, if there is one.
    fn attach_mapped(&mut self, mapped: &Mapped, purpose: ScanPurpose) -> Result<Option<AttachId>> {
        let library = mapped.open()?;
        let (file, likeness) = (library.id(), library.likeness);
        let is_known = self.files.know(&library) || self.files.is_probed_elsewhere(&library);
        if purpose == ScanPurpose::Uses && !is_known {
            return Ok(None);
        }
        let id = self.attach(library)?;
        if id.is_none() {
            self.files.note_mapping(mapped, file, likeness);
        }
        Ok(id)
    }

    fn note_failed(&mut self, mapped: &Mapped, error: Error, scanned: &mut ScanResult) {
        if is_foreign(&error) {
            // The file system may be served by another user later: tried again.
            mounts::say_foreign(&mapped.path);
            return;
        }
        scanned.incomplete = true;
        if self.files.failed(mapped) && self.files.may_warn() {
            scanned.failures.push(error);
        } else {
            tracing::debug!("{error:#}");
        }
    }
}
