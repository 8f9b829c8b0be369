//! Attaching to the functions of files.

use super::super::TensorMode;
use super::super::scanned::beginning;
use super::Tracer;
use crate::host::{LibraryRole, MappedLibrary};
use crate::probe::{AttachId, AttachOutcome, Attached, ProbePoint, Purpose};
use anyhow::{Error, Result, anyhow, bail};
use gpuprobe_cuda::{FUNCTIONS, Function, Layer, Op};
use gpuprobe_os::mounts;
use gpuprobe_stacks::functions::FunctionInFile as FoundFunction;
use gpuprobe_stacks::instruction::FirstInstruction;
use gpuprobe_stacks::reader::NotNow;

/// A library to which a request to attach is on its way.
pub(super) struct Attaching {
    library: MappedLibrary,
    attached: Vec<Attached>,
    /// The device queries in it, with their probes if these are requested too.
    queries: Option<(Vec<ProbePoint>, Option<Attached>)>,
    /// Number of CUDA functions.
    functions: usize,
}

/// A request to attach that was answered.
#[derive(Debug)]
pub struct Settled {
    pub(super) id: AttachId,
    /// Number of CUDA functions that are newly probed. The first process to be told of it takes the error.
    pub(super) result: Result<usize>,
}

impl Tracer {
    /// Requests to attach to `library` unless it is probed already. Returns the request that is on its way now, if
    /// one is.
    pub(super) fn attach(&mut self, library: MappedLibrary) -> Result<Option<AttachId>> {
        if let Some(id) = self.request_for(&library) {
            return Ok(Some(id));
        }
        if self.files.know(&library) {
            return Ok(None);
        }
        if self.files.is_probed_elsewhere(&library) {
            let path = library.path.display();
            tracing::debug!("{path} is probed already, through another overlay");
            return Ok(None);
        }
        if let Some(why) = self.files.refuse() {
            let path = library.path.display();
            self.files.skip(&library);
            if self.files.is_first(why) {
                tracing::warn!("{path} and similar files are not probed: {why}");
            } else {
                tracing::debug!("{path} is not probed: {why}");
            }
            return Ok(None);
        }
        match library.role {
            LibraryRole::Cuda(layer) => self.attach_cuda(library, layer),
            LibraryRole::Framework => self.attach_framework(library),
            LibraryRole::Requests => self.send(
                library,
                vec![(Purpose::Requests, Vec::new())],
                Vec::new(),
                0,
            ),
            LibraryRole::Loader => self.attach_loader(library),
        }
    }

    /// Whether files of this role are probed.
    pub(super) fn probes(&self, role: LibraryRole) -> bool {
        match role {
            LibraryRole::Cuda(_) | LibraryRole::Loader => true,
            LibraryRole::Framework => self.tensors != TensorMode::Off,
            LibraryRole::Requests => self.tensors == TensorMode::Requested,
        }
    }

    /// The request on its way to attach to this file, perhaps through another overlay.
    fn request_for(&self, library: &MappedLibrary) -> Option<AttachId> {
        let is_it = |other: &MappedLibrary| {
            let in_overlay = other.in_overlay || library.in_overlay;
            let is_alike = other.role == library.role && other.likeness == library.likeness;
            other.id() == library.id() || in_overlay && is_alike
        };
        let mut all = self.attaching.iter();
        all.find(|(_, attaching)| is_it(&attaching.library))
            .map(|(id, _)| *id)
    }

    /// Requests to attach to these functions of `library`, and to its device queries while such are probed.
    fn send(
        &mut self,
        library: MappedLibrary,
        parts: Vec<(Purpose, Vec<ProbePoint>)>,
        queries: Vec<ProbePoint>,
        functions: usize,
    ) -> Result<Option<AttachId>> {
        let pids = &self.only_pids;
        let mut plan = self.probe.plan();
        let mut add = |(purpose, points)| plan.add(purpose, points, pids);
        let attached = parts.into_iter().map(&mut add).collect();
        let queries = (!queries.is_empty()).then(|| {
            let are_on = self.queries.are_on();
            let probes = are_on.then(|| add((Purpose::Calls, queries.clone())));
            (queries, probes)
        });
        let id = plan.send(library.file())?;
        let attaching = Attaching {
            library,
            attached,
            queries,
            functions,
        };
        self.attaching.insert(id, attaching);
        Ok(Some(id))
    }

    /// Takes the answer to a request. Returns it if it is not to one of the tracer's.
    pub fn settle(&mut self, outcome: AttachOutcome) -> Result<Settled, Option<AttachOutcome>> {
        let Some(attaching) = self.attaching.remove(&outcome.id) else {
            return Err(self.queries.answered(outcome));
        };
        let (id, library) = (outcome.id, &attaching.library);
        let path = library.path.display();
        let result = match (outcome.result, library.role) {
            (Ok(()), _) => self.enter(attaching),
            // Tensors are traced all the same.
            (Err(error), LibraryRole::Requests) => {
                tracing::debug!("{path}: requested sizes are not traced: {error:#}");
                self.files.skip(library);
                Ok(0)
            }
            (Err(error), role) => Err(error.context(match role {
                LibraryRole::Cuda(_) => {
                    format!(
                        "cannot attach to {} functions of {path}",
                        attaching.functions
                    )
                }
                LibraryRole::Loader => format!("cannot attach to _dl_debug_state of {path}"),
                _ => format!("cannot attach to the allocator of {path}"),
            })),
        };
        Ok(Settled { id, result })
    }

    /// Enters a library to which the probes are attached. Returns the number of its CUDA functions.
    fn enter(&mut self, attaching: Attaching) -> Result<usize> {
        let Attaching {
            library,
            attached,
            queries,
            functions,
        } = attaching;
        let group = self.files.next_group();
        for attached in attached {
            self.probe.keep(Some(group), attached);
        }
        if let Some((points, probes)) = queries {
            self.queries
                .add(group, library.try_clone_file()?, points, probes);
        }
        self.files.enter(&library, group);
        let path = library.path.display();
        match library.role {
            LibraryRole::Cuda(_) => {
                self.libraries += 1;
                self.functions += functions;
                tracing::info!("{functions} functions of {path} are probed");
            }
            LibraryRole::Framework => tracing::info!("the allocator of {path} is probed"),
            LibraryRole::Requests | LibraryRole::Loader => {}
        }
        Ok(functions)
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

    fn attach_cuda(&mut self, library: MappedLibrary, layer: Layer) -> Result<Option<AttachId>> {
        let mut functions = match library.functions(&self.reader, layer) {
            Ok(functions) => functions,
            Err(error) => return self.skip(&library, &error),
        };
        if functions.is_empty() {
            let error = anyhow!("it exports none of the traced functions");
            return self.skip(&library, &error);
        }
        functions.retain(|f| self.wants(&FUNCTIONS[usize::from(f.row)]));
        let path = library.path.display().to_string();
        self.leave_out_unsafe(&mut functions, &path);
        let count = functions.len();
        let op = |f: &FoundFunction| FUNCTIONS[usize::from(f.row)].op;
        // In the order in which they are attached while the program runs: the device of an allocation that is seen is
        // that of all earlier calls, or unknown.
        functions.sort_by_key(|f| !op(f).is_context_call());
        let told = |op: Op| self.modes.memleak && op.is_ledger_event();
        let only_counted = |op: Op| op.is_launch() && !self.single_launches && !told(op);
        let (entries, calls): (Vec<_>, Vec<_>) = functions
            .into_iter()
            .partition(|f| only_counted(op(f)) || op(f).is_capture_call());
        let (queries, calls): (Vec<_>, Vec<_>) =
            calls.into_iter().partition(|f| op(f).is_device_query());
        let points = |of: Vec<FoundFunction>| of.iter().map(ProbePoint::from).collect();
        let mut parts: Vec<(_, Vec<_>)> = vec![
            (Purpose::Calls, points(calls)),
            (Purpose::Entries, points(entries)),
        ];
        parts.retain(|(_, points)| !points.is_empty());
        self.send(library, parts, points(queries), count)
    }

    /// Probes the memory reports of a framework's allocator.
    fn attach_framework(&mut self, library: MappedLibrary) -> Result<Option<AttachId>> {
        let functions = match library.functions(&self.reader, Layer::Framework) {
            Ok(functions) => functions,
            Err(error) => return self.skip(&library, &error),
        };
        let points: Vec<_> = functions.iter().map(ProbePoint::from).collect();
        if points.is_empty() {
            let error = anyhow!(
                "its allocator reports allocations in no known way, so its tensors are not traced; \
                 PyTorch 1.10 or newer and TensorFlow 2.19 do"
            );
            return self.skip(&library, &error);
        }
        self.send(library, vec![(Purpose::Tensors, points)], Vec::new(), 0)
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
    fn attach_loader(&mut self, library: MappedLibrary) -> Result<Option<AttachId>> {
        let found = match library.rendezvous(&self.reader) {
            Ok(Some(found)) => found,
            Ok(None) => {
                let error =
                    anyhow!("it has no _dl_debug_state, so dlopen in its programs is not noticed");
                return self.skip(&library, &error);
            }
            Err(error) => return self.skip(&library, &error),
        };
        let point = ProbePoint {
            offset: found.offset,
            cookie: found.to_r_debug.cast_unsigned(),
        };
        self.send(
            library,
            vec![(Purpose::Rendezvous, vec![point])],
            Vec::new(),
            0,
        )
    }

    /// Skips a file to which no probe can be attached, now or later, with one warning. Returns an error
    /// if the file could not be read just now.
    fn skip(&mut self, library: &MappedLibrary, why: &Error) -> Result<Option<AttachId>> {
        if why.is::<NotNow>() {
            bail!("{why:#}");
        }
        self.files.skip(library);
        self.warn(&anyhow!(
            "{} is not probed: {why:#}",
            library.path.display()
        ));
        Ok(None)
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
