//! Attaching to the functions of files.

use std::mem::replace;

use anyhow::{Result, anyhow, bail};

use super::Found;
use super::files::ProbedFile;
use super::finder::{Finder, Look};
use crate::host::process::{Mapped, ProcessHandle};
use crate::host::{LibraryRole, MappedLibrary};
use crate::live::TensorMode;
use crate::probe::{ProbePoint, Purpose};
use gpuprobe_cuda::{FUNCTIONS, Function, Layer, Op};
use gpuprobe_model::clock;
use gpuprobe_os::mounts;
use gpuprobe_stacks::blocks::FRAMEWORKS;
use gpuprobe_stacks::functions::FunctionInFile as FoundFunction;
use gpuprobe_stacks::helper::NotNow;
use gpuprobe_stacks::instruction::FirstInstruction;

/// The probes of a file, attached together or not at all.
#[derive(Default)]
struct Plan {
    parts: Vec<(Purpose, Vec<ProbePoint>)>,
    /// What is probed at some times only.
    timed: Option<(Purpose, Vec<ProbePoint>)>,
    /// Number of CUDA functions.
    functions: usize,
}

impl Finder {
    /// Notes a file that a process has mapped, and attaches to it, unless that was done.
    pub(super) fn note_mapped(&mut self, look: &mut Look, mapped: &Mapped) {
        let cuda = match mapped.role {
            LibraryRole::Cuda(layer) => Some(layer),
            _ => None,
        };
        if let Some(layer) = cuda {
            self.tell(Found::Layer(layer));
            if !replace(&mut look.has_cuda, true) {
                self.tell(Found::User(look.pid));
                if let Some(stacks) = &self.stacks {
                    stacks.prepare(look.pid);
                }
            }
        }
        if !self.probes(mapped.role) {
            return;
        }
        if self.files.probed(mapped).is_none() {
            if look.is_over() {
                look.is_partial = true;
            } else if let Err(error) = self.attach_mapped(look, mapped) {
                let cause = error.root_cause().downcast_ref();
                if cause.is_some_and(mounts::is_foreign) {
                    // The file system may be served by another user later: tried again.
                    mounts::say_foreign(&mapped.path);
                } else {
                    look.is_incomplete = true;
                    self.files.warn(&error);
                }
            }
        }
        if let Some(probed) = self.files.probed(mapped) {
            probed.user = probed.user.or_else(|| ProcessHandle::of(look.pid).ok());
            if cuda.is_some() {
                look.attached_ns = look.attached_ns.max(probed.attached_ns);
            }
        }
    }

    /// Whether files of this role are probed.
    fn probes(&self, role: LibraryRole) -> bool {
        match role {
            LibraryRole::Cuda(_) | LibraryRole::Loader => true,
            LibraryRole::Library => self.config.modes.memleak,
            LibraryRole::Framework => self.config.tensors != TensorMode::Off,
            LibraryRole::Requests => self.config.tensors == TensorMode::Requested,
        }
    }

    fn attach_mapped(&mut self, look: &mut Look, mapped: &Mapped) -> Result<()> {
        let library = mapped.open()?;
        let is_new = self.files.find(&library).is_none();
        if is_new && look.since_ns.is_some() && matches!(mapped.role, LibraryRole::Cuda(_)) {
            // Again once it is attached: calls may be seen before that is known.
            self.probe.attached_late(look.pid);
        }
        self.attach(&library)?;
        look.learnt += usize::from(is_new);
        self.files.note_mapping(mapped, &library);
        Ok(())
    }

    /// Attaches to `library` unless it is probed already, or is not to be.
    pub(super) fn attach(&mut self, library: &MappedLibrary) -> Result<()> {
        if self.files.find(library).is_some() {
            return Ok(());
        }
        let path = library.path.display();
        let plan = match self.plan(library) {
            Ok(plan) => plan,
            Err(why) if why.is::<NotNow>() => return Err(why),
            Err(why) => {
                self.files.enter(library, None);
                self.files.warn(&anyhow!("{path} is not probed: {why:#}"));
                return Ok(());
            }
        };
        let functions = plan.functions;
        let what = match library.role {
            LibraryRole::Cuda(_) => format!("{functions} functions of {path}"),
            LibraryRole::Loader => format!("_dl_debug_state of {path}"),
            LibraryRole::Library => format!("{functions} functions of {path}"),
            _ => format!("the allocator of {path}"),
        };
        match (self.attach_plan(library, plan), library.role) {
            (Ok(()), LibraryRole::Cuda(_)) => {
                self.libraries += 1;
                self.tell(Found::Library { functions });
                tracing::info!("{what} are probed");
            }
            (Ok(()), _) => tracing::info!("{what} is probed"),
            // Tensors are traced all the same.
            (Err(error), LibraryRole::Requests) => {
                tracing::debug!("{path}: requested sizes are not traced: {error:#}");
                self.files.enter(library, None);
                return Ok(());
            }
            (Err(error), _) => return Err(error.context(format!("cannot attach to {what}"))),
        }
        Ok(())
    }

    fn attach_plan(&mut self, library: &MappedLibrary, plan: Plan) -> Result<()> {
        let attach = |purpose, points: &[_]| {
            self.probe
                .attach(purpose, &library.file, points, &self.only_pids)
        };
        let mut links = Vec::new();
        for (purpose, points) in &plan.parts {
            links.extend(attach(*purpose, points)?);
        }
        let timed = plan.timed.unwrap_or((Purpose::Calls, Vec::new()));
        let is_time = match timed.0 {
            Purpose::Tensors => self.has_window,
            _ => self.queries.are_on(),
        };
        let timed_links = match is_time && !timed.1.is_empty() {
            true => attach(timed.0, &timed.1)?,
            false => Vec::new(),
        };
        let probed = ProbedFile {
            owner: library.owner,
            path: library.path.clone(),
            file: library.file.try_clone()?,
            links,
            timed,
            timed_links,
            attached_ns: clock::boot_ns(),
            user: None,
        };
        self.files.enter(library, Some(probed));
        Ok(())
    }

    /// The probes of a file.
    ///
    /// # Errors
    /// Returns why it is not probed, now or later, or [`NotNow`].
    fn plan(&mut self, library: &MappedLibrary) -> Result<Plan> {
        if self.files.are_full() {
            bail!("the maximum number of probed libraries is reached");
        }
        let (purpose, points) = match library.role {
            LibraryRole::Cuda(layer) => return self.plan_cuda(library, layer),
            LibraryRole::Framework => {
                let mut functions = library.functions(&self.reader, Layer::Framework)?;
                if functions.is_empty() {
                    bail!(
                        "its allocator reports allocations in no known way, so its tensors are not traced; \
                         docs/functions.md says which frameworks do"
                    );
                }
                let row = |f: &FoundFunction| &FUNCTIONS[usize::from(f.row)];
                let is_census = self.config.tensors == TensorMode::Census;
                let is_read = |f: &FoundFunction| {
                    let framework = row(f).framework;
                    framework.is_some_and(|one| FRAMEWORKS.contains(&one))
                };
                functions.retain(|f| !is_census || is_read(f));
                if functions.is_empty() {
                    bail!("its blocks cannot be read from memory; --tensors on traces them");
                }
                let (hooks, others): (Vec<_>, Vec<_>) = functions
                    .iter()
                    .partition(|f| is_census && row(f).op == Op::Tensor);
                let points =
                    |of: Vec<&FoundFunction>| of.into_iter().map(ProbePoint::from).collect();
                let mut parts: Vec<(_, Vec<_>)> = vec![(Purpose::Tensors, points(others))];
                parts.retain(|(_, points)| !points.is_empty());
                let timed = Some((Purpose::Tensors, points(hooks)));
                return Ok(Plan {
                    parts,
                    timed,
                    ..Plan::default()
                });
            }
            LibraryRole::Library => {
                let functions = library.functions(&self.reader, Layer::Library)?;
                let points = functions.iter().map(ProbePoint::from).collect();
                (Purpose::Calls, points)
            }
            LibraryRole::Requests => (Purpose::Requests, Vec::new()),
            LibraryRole::Loader => {
                // Without it, libraries loaded later are found late.
                let Some(found) = library.rendezvous(&self.reader)? else {
                    bail!("it has no _dl_debug_state, so dlopen in its programs is not noticed");
                };
                let point = ProbePoint {
                    offset: found.offset,
                    cookie: found.to_r_debug.cast_unsigned(),
                };
                (Purpose::Rendezvous, vec![point])
            }
        };
        Ok(Plan {
            parts: vec![(purpose, points)],
            ..Plan::default()
        })
    }

    fn plan_cuda(&mut self, library: &MappedLibrary, layer: Layer) -> Result<Plan> {
        let mut functions = library.functions(&self.reader, layer)?;
        if functions.is_empty() {
            bail!("it exports none of the traced functions");
        }
        functions.retain(|f| self.wants(&FUNCTIONS[usize::from(f.row)]));
        let path = library.path.display().to_string();
        self.leave_out_unsafe(&mut functions, &path);
        let count = functions.len();
        let op = |f: &FoundFunction| FUNCTIONS[usize::from(f.row)].op;
        // In the order in which they are attached while the program runs: the device of an allocation that is seen is
        // that of all earlier calls, or unknown.
        functions.sort_by_key(|f| !op(f).is_context_call());
        let told = |op: Op| self.config.modes.memleak && op.is_ledger_event();
        let only_counted = |op: Op| op.is_launch() && !self.config.records_launches() && !told(op);
        let (entries, calls): (Vec<_>, Vec<_>) = functions
            .into_iter()
            .partition(|f| only_counted(op(f)) || op(f).is_capture_call() && !told(op(f)));
        let (queries, calls): (Vec<_>, Vec<_>) =
            calls.into_iter().partition(|f| op(f).is_device_query());
        let (checkpoints, calls): (Vec<_>, Vec<_>) =
            calls.into_iter().partition(|f| op(f).is_checkpoint());
        let (launches, entries): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|f| op(f).is_launch());
        let points = |of: Vec<FoundFunction>| of.iter().map(ProbePoint::from).collect();
        let mut parts: Vec<(_, Vec<_>)> = vec![
            (Purpose::Calls, points(calls)),
            (Purpose::Checkpoints, points(checkpoints)),
            (Purpose::Launches, points(launches)),
            (Purpose::Entries, points(entries)),
        ];
        parts.retain(|(_, points)| !points.is_empty());
        Ok(Plan {
            parts,
            timed: Some((Purpose::Calls, points(queries))),
            functions: count,
        })
    }

    /// Removes the functions on which a probe is not possible or not safe. Warns of these, and of those
    /// on which it is slow.
    fn leave_out_unsafe(&mut self, functions: &mut Vec<FoundFunction>, path: &str) {
        let refused = "the kernel allows no probe on their first instruction";
        let replaced = "they begin with a 5-byte nop, and probes on these can corrupt the program on Linux 6.18 to \
                        7.2; --allow-nop5 probes them all the same";
        let unsafe_ones = [
            (FirstInstruction::Refused, refused),
            (FirstInstruction::Replaced, replaced),
        ];
        for (first, why) in unsafe_ones {
            if first == FirstInstruction::Replaced && self.config.advanced.allow_nop5 {
                continue;
            }
            if let Some(names) = beginning(functions, first) {
                self.files
                    .warn(&anyhow!("{names} of {path} not probed: {why}"));
                functions.retain(|f| f.first != first);
            }
        }
        if let Some(stepped) = beginning(functions, FirstInstruction::Stepped) {
            self.files.warn(&anyhow!(
                "slow probes on {stepped} of {path}: the kernel cannot emulate their first \
                 instruction, and single-stepping costs ten times as much or more"
            ));
        }
    }

    /// Whether to probe `function`.
    fn wants(&self, function: &Function) -> bool {
        let op = function.op;
        // The runtime's queries call the driver's, which return the same.
        let teaches = self.queries.are_wanted() && function.layer == Layer::Driver;
        op.is_needed_by(self.config.modes, function.kind)
            && self.config.advanced.api.includes(function)
            && (!op.is_device_query() || teaches)
            && (!op.is_context_call() || self.config.modes.memleak || !self.one_gpu)
    }
}

/// The names of the `functions` that begin with such an instruction, at most three of them and the
/// number of the others; `None` if there are none.
fn beginning(functions: &[FoundFunction], first: FirstInstruction) -> Option<String> {
    const NAMED: usize = 3;
    let found = functions.iter().filter(|f| f.first == first);
    let names: Vec<_> = found.map(|f| f.symbol).collect();
    let some = names[..names.len().min(NAMED)].join(", ");
    match names.len() {
        0 => None,
        1..=NAMED => Some(some),
        count => Some(format!("{some} and {} others", count - NAMED)),
    }
}
