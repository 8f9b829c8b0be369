//! Attaching to the functions of files.

use super::super::scanned::beginning;
use super::super::{TensorMode, limits};
use super::Tracer;
use crate::host::{LibraryRole, MappedLibrary};
use crate::probe::{Attached, ProbePoint};
use anyhow::{Context, Error, Result, anyhow, bail};
use gpuprobe_cuda::{FUNCTIONS, Function, Layer, Op};
use gpuprobe_os::mounts;
use gpuprobe_stacks::functions::FunctionInFile as FoundFunction;
use gpuprobe_stacks::instruction::FirstInstruction;
use gpuprobe_stacks::reader::NotNow;

impl Tracer {
    /// Attaches to `library` unless it is probed already. Returns the number of CUDA functions
    /// that are newly probed.
    pub(super) fn attach(&mut self, library: &MappedLibrary) -> Result<usize> {
        if self.files.know(library) {
            return Ok(0);
        }
        if self.files.is_probed_elsewhere(library) {
            let path = library.path.display();
            tracing::debug!("{path} is probed already, through another overlay");
            return Ok(0);
        }
        let is_crowded = limits::is_crowded(library.descriptor());
        if let Some(why) = self.files.refuse(library, is_crowded) {
            let path = library.path.display();
            self.files.skip(library);
            if self.files.is_first(why) {
                tracing::warn!("{path} and similar files are not probed: {why}");
            } else {
                tracing::debug!("{path} is not probed: {why}");
            }
            return Ok(0);
        }
        match library.role {
            LibraryRole::Cuda(layer) => self.attach_cuda(library, layer),
            LibraryRole::Framework if self.tensors != TensorMode::Off => {
                self.attach_framework(library)
            }
            LibraryRole::Requests if self.tensors == TensorMode::Requested => {
                self.attach_requests(library)
            }
            LibraryRole::Framework | LibraryRole::Requests => Ok(0),
            LibraryRole::Loader => self.attach_loader(library),
        }
    }

    /// Removes the functions on which a probe is not possible or not safe. Warns of these, and of those
    /// on which it is slow.
    fn leave_out_unsafe(&mut self, functions: &mut Vec<FoundFunction>, path: &str) {
        if let Some(refused) = beginning(functions, FirstInstruction::Refused) {
            self.warn(&anyhow!(
                "{refused} of {path} not probed: the kernel allows no probe on their first \
                 instruction"
            ));
            functions.retain(|f| f.first != FirstInstruction::Refused);
        }
        if !self.allow_nop5
            && let Some(replaced) = beginning(functions, FirstInstruction::Replaced)
        {
            self.warn(&anyhow!(
                "{replaced} of {path} not probed: they begin with a 5-byte nop, and probes on these \
                 can corrupt the program on Linux 6.18 to 7.2; --allow-nop5 probes them all the same"
            ));
            functions.retain(|f| f.first != FirstInstruction::Replaced);
        }
        if let Some(stepped) = beginning(functions, FirstInstruction::Stepped) {
            self.warn(&anyhow!(
                "slow probes on {stepped} of {path}: the kernel cannot emulate their first \
                 instruction, and single-stepping costs ten times as much or more"
            ));
        }
    }

    fn attach_cuda(&mut self, library: &MappedLibrary, layer: Layer) -> Result<usize> {
        let mut functions = match library.functions(&self.reader, layer) {
            Ok(functions) => functions,
            Err(error) => return self.skip(library, &error),
        };
        if functions.is_empty() {
            let error = anyhow!("it exports none of the traced functions");
            return self.skip(library, &error);
        }
        functions.retain(|f| self.wants(&FUNCTIONS[usize::from(f.row)]));
        let path = library.path.display().to_string();
        self.leave_out_unsafe(&mut functions, &path);
        let op = |f: &FoundFunction| FUNCTIONS[usize::from(f.row)].op;
        let told = |op: Op| self.modes.memleak && op.is_ledger_event();
        let only_counted = |op: Op| op.is_launch() && !self.single_launches && !told(op);
        let (entries, calls): (Vec<_>, Vec<_>) = functions
            .iter()
            .partition(|f| only_counted(op(f)) || op(f).is_capture_call());
        let (queries, calls): (Vec<_>, Vec<_>) =
            calls.into_iter().partition(|f| op(f).is_device_query());
        let (file, pids) = (library.attach_path(), &self.only_pids);
        let group = self.files.next_group();
        let calls: Vec<_> = calls.iter().map(ProbePoint::from).collect();
        if !calls.is_empty() {
            let attached = self.probe.attach_calls(&file, &calls, pids);
            let count = calls.len();
            let why = || format!("cannot attach to {count} functions of {path}");
            self.probe.keep(Some(group), attached.with_context(why)?);
        }
        let queries: Vec<_> = queries.iter().map(ProbePoint::from).collect();
        if !queries.is_empty() {
            let probe = &self.probe;
            let attach = |file: &str, points: &[ProbePoint]| probe.attach_calls(file, points, pids);
            let why = || format!("cannot attach to the device queries of {path}");
            let added = self
                .queries
                .add(group, library.try_clone_file()?, queries, attach);
            added.with_context(why)?;
        }
        let entries: Vec<_> = entries.iter().map(ProbePoint::from).collect();
        if !entries.is_empty() {
            let attached = self.probe.attach_to_entries(&file, &entries, pids);
            let why = || format!("cannot attach to the launches of {path}");
            self.probe.keep(Some(group), attached.with_context(why)?);
        }
        self.files.enter(library, group);
        self.libraries += 1;
        self.functions += functions.len();
        tracing::info!("{} functions of {path} are probed", functions.len());
        Ok(functions.len())
    }

    /// Probes the memory reports of a framework's allocator.
    fn attach_framework(&mut self, library: &MappedLibrary) -> Result<usize> {
        let path = library.path.display();
        let functions = match library.functions(&self.reader, Layer::Framework) {
            Ok(functions) => functions,
            Err(error) => return self.skip(library, &error),
        };
        let points: Vec<_> = functions.iter().map(ProbePoint::from).collect();
        if points.is_empty() {
            let error = anyhow!(
                "its allocator reports allocations in no known way, so its tensors are not traced; \
                 PyTorch 1.10 or newer and TensorFlow 2.19 do"
            );
            return self.skip(library, &error);
        }
        let attached = self
            .probe
            .attach_tensors(&library.attach_path(), &points, &self.only_pids);
        let why = || format!("cannot attach to the allocator of {path}");
        self.keep(library, attached.with_context(why)?);
        tracing::info!("the allocator of {path} is probed");
        Ok(0)
    }

    /// Attaches to the static probes for requested sizes. Without them, tensors are traced all the
    /// same.
    fn attach_requests(&mut self, library: &MappedLibrary) -> Result<usize> {
        let path = library.path.display();
        let attached = self
            .probe
            .attach_requests(&library.attach_path(), &self.only_pids);
        match attached {
            Ok(attached) => {
                self.keep(library, attached);
            }
            Err(error) => {
                tracing::debug!("{path}: requested sizes are not traced: {error:#}");
                self.files.skip(library);
            }
        }
        Ok(0)
    }

    /// Whether to probe `function`.
    fn wants(&self, function: &Function) -> bool {
        let op = function.op;
        // The runtime's queries call the driver's, which return the same.
        let teaches = self.queries.are_wanted() && function.layer == Layer::Driver;
        op.is_needed_by(self.modes, function.kind)
            && self.api.includes(function)
            && (!op.is_device_query() || teaches)
            && (!op.is_context_call() || self.modes.memleak || !self.one_gpu)
    }

    /// Attaches to the loader's rendezvous; without it, libraries loaded later are found late.
    fn attach_loader(&mut self, library: &MappedLibrary) -> Result<usize> {
        let path = library.path.display();
        let found = match library.rendezvous(&self.reader) {
            Ok(Some(found)) => found,
            Ok(None) => {
                let error =
                    anyhow!("it has no _dl_debug_state, so dlopen in its programs is not noticed");
                return self.skip(library, &error);
            }
            Err(error) => return self.skip(library, &error),
        };
        let point = ProbePoint {
            offset: found.offset,
            cookie: found.to_r_debug.cast_unsigned(),
        };
        let attached = self
            .probe
            .attach_rendezvous(&library.attach_path(), point, &self.only_pids)
            .with_context(|| format!("cannot attach to _dl_debug_state of {path}"))?;
        self.keep(library, attached);
        Ok(0)
    }

    /// Keeps the probes of `library`, which has no others.
    fn keep(&mut self, library: &MappedLibrary, attached: Attached) {
        let group = self.files.next_group();
        self.probe.keep(Some(group), attached);
        self.files.enter(library, group);
    }

    /// Skips a file to which no probe can be attached, now or later, with one warning. Returns an error
    /// if the file could not be read just now.
    fn skip(&mut self, library: &MappedLibrary, why: &Error) -> Result<usize> {
        if why.is::<NotNow>() {
            bail!("{why:#}");
        }
        self.files.skip(library);
        self.warn(&anyhow!(
            "{} is not probed: {why:#}",
            library.path.display()
        ));
        Ok(0)
    }

    /// Prints a warning about a file, up to a maximum number.
    pub(super) fn warn(&mut self, what: &Error) {
        if self.files.may_warn() {
            tracing::warn!("{what:#}");
        } else {
            tracing::debug!("{what:#}");
        }
    }
}

/// Whether a file is skipped because another user serves its file system.
pub(super) fn is_foreign(error: &Error) -> bool {
    let cause = error.root_cause().downcast_ref();
    cause.is_some_and(mounts::is_foreign)
}
