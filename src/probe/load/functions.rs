//! Attaching of the loaded programs.

use super::super::attach::{self, Attached, ProbePoint};
use super::super::kind::AttachKind;
use super::Probe;
use anyhow::Result;
use libbpf_rs::ProgramMut;

impl Probe {
    /// Attaches to entry and return of the functions at `points` of the file at `path`, in all processes
    /// or, if there are any, in `pids`. The probes stay until the result is dropped.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn attach_calls(
        &self,
        path: &str,
        points: &[ProbePoint],
        pids: &[i32],
    ) -> Result<Attached> {
        let (entry, on_return) = self.call_programs();
        // Returns first: an entry without its return would never complete.
        let programs = on_return.map(|program| (program, true));
        let programs: Vec<_> = programs.into_iter().chain([(entry, false)]).collect();
        self.attach(&programs, self.kind, path, points, pids)
    }

    /// The programs for entry and return; a session has one for both.
    fn call_programs(&self) -> (&ProgramMut<'static>, Option<&ProgramMut<'static>>) {
        let progs = &self.skeleton.progs;
        match self.kind {
            AttachKind::Session => (&progs.call_session, None),
            AttachKind::Multi => (&progs.call_entry_multi, Some(&progs.call_return_multi)),
            AttachKind::Perf => (&progs.call_entry_perf, Some(&progs.call_return_perf)),
            AttachKind::Offset => (&progs.call_entry_offset, Some(&progs.call_return_offset)),
        }
    }

    pub(super) fn attach(
        &self,
        programs: &[(&ProgramMut<'_>, bool)],
        kind: AttachKind,
        path: &str,
        points: &[ProbePoint],
        pids: &[i32],
    ) -> Result<Attached> {
        let probed = match kind {
            AttachKind::Offset => Some(self.enter_cookies(path, points)?),
            _ => None,
        };
        let path = probed.as_ref().map_or(path, |probed| &probed.path);
        let mut links = Vec::new();
        for pid in self.only_in(pids) {
            for &(program, is_return) in programs {
                match attach::attach(program, kind, path, points, pid, is_return) {
                    Ok(attached) => links.extend(attached),
                    // The others are traced all the same.
                    Err(error) if pids.len() > 1 && is_gone(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let files = probed.into_iter().map(|probed| probed.file).collect();
        Ok(Attached { links, files })
    }

    /// Attaches to functions of which only the entry matters: launches and stream operations.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn attach_to_entries(
        &self,
        path: &str,
        points: &[ProbePoint],
        pids: &[i32],
    ) -> Result<Attached> {
        let progs = &self.skeleton.progs;
        let programs = [&progs.entry_multi, &progs.entry_perf, &progs.entry_offset];
        self.attach_entries(programs, path, points, pids)
    }

    /// Attaches to functions of frameworks' allocators: entry only, with the call stack.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn attach_tensors(
        &self,
        path: &str,
        points: &[ProbePoint],
        pids: &[i32],
    ) -> Result<Attached> {
        let (entry, _) = self.call_programs();
        self.attach(&[(entry, false)], self.kind, path, points, pids)
    }

    /// Attaches to the static probes of an allocator for requested sizes.
    ///
    /// # Errors
    /// Returns an error if the file has no such probe, or the kernel supports no cookies, which they need.
    pub fn attach_requests(&self, path: &str, pids: &[i32]) -> Result<Attached> {
        let program = &self.skeleton.progs.tensor_request;
        let pids = self.only_in(pids).into_iter();
        let links = pids.map(|pid| program.attach_usdt(pid, path, "pytorch", "malloc"));
        Ok(Attached {
            links: links.collect::<Result<_, _>>()?,
            files: Vec::new(),
        })
    }

    /// Attaches to the function of a collector that takes its batches.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn attach_batches(&self, path: &str, offset: u64) -> Result<Attached> {
        let progs = &self.skeleton.progs;
        let point = ProbePoint { offset, cookie: 0 };
        // The only probed function of its file: no cookie is needed.
        let programs = [&progs.batch_multi, &progs.batch_perf, &progs.batch_perf];
        self.attach_entries(programs, path, &[point], &[])
    }

    /// Attaches to the destructor of an interpreter's code objects.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn attach_code_gone(&self, path: &str, offset: u64) -> Result<Attached> {
        let progs = &self.skeleton.progs;
        let point = ProbePoint { offset, cookie: 0 };
        // The only probed function of its file: no cookie is needed.
        let programs = [
            &progs.code_gone_multi,
            &progs.code_gone_perf,
            &progs.code_gone_perf,
        ];
        self.attach_entries(programs, path, &[point], &[])
    }

    /// Attaches to the dynamic loader's rendezvous.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn attach_rendezvous(
        &self,
        path: &str,
        point: ProbePoint,
        pids: &[i32],
    ) -> Result<Attached> {
        let progs = &self.skeleton.progs;
        let programs = [
            &progs.rendezvous_multi,
            &progs.rendezvous_perf,
            &progs.rendezvous_offset,
        ];
        self.attach_entries(programs, path, &[point], pids)
    }

    /// Attaches to entries only, which works without sessions.
    fn attach_entries(
        &self,
        [multi, perf, offset]: [&ProgramMut<'_>; 3],
        path: &str,
        points: &[ProbePoint],
        pids: &[i32],
    ) -> Result<Attached> {
        let (program, kind) = match self.kind {
            AttachKind::Session | AttachKind::Multi => (multi, AttachKind::Multi),
            AttachKind::Perf => (perf, AttachKind::Perf),
            AttachKind::Offset => (offset, AttachKind::Offset),
        };
        self.attach(&[(program, false)], kind, path, points, pids)
    }

    /// The processes to restrict the probes to, -1 for none, if the kernel can and they are few; the
    /// self-test restricts them to this process to find out.
    fn only_in(&self, pids: &[i32]) -> Vec<i32> {
        const ALL: i32 = -1;
        let can = self.filters_processes || *pids == [std::process::id().cast_signed()];
        // Each has its own links, which are attached and detached one after the other for perf events.
        let most = if self.kind.is_one_by_one() {
            1
        } else {
            MOST_PIDS
        };
        match pids.len() {
            1.. if can && pids.len() <= most => pids.to_vec(),
            _ => vec![ALL],
        }
    }
}

/// Maximum number of processes to which probes are restricted. More are told apart by the BPF programs, and
/// the other users of the library pay for a trap.
const MOST_PIDS: usize = 8;

/// Whether the process to attach to has ended. The library's error hides the number.
fn is_gone(error: &anyhow::Error) -> bool {
    let gone = std::io::Error::from_raw_os_error(nix::libc::ESRCH).to_string();
    error.chain().any(|cause| cause.to_string() == gone)
}
