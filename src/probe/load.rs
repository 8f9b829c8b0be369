//! Loading the BPF programs with the best supported kind of attachment.

use super::configure::{configure, share};
use std::fs::File;
use std::mem::MaybeUninit;

use anyhow::{Context, Result, anyhow, bail};
use caps::Capability;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapType, OpenObject, ProgramMut};
use zerocopy::FromZeros;

use super::attach::{self, Attached, FileProbes, ProbePoint};
use super::kind::{self, AttachKind};
use super::map_entries::MapEntries;
use super::skeleton::{GpuprobeSkel, GpuprobeSkelBuilder};
use super::types;
use crate::probe::StackMode;
use gpuprobe_cuda::table;
use gpuprobe_model::abi::RawCode;
use gpuprobe_os::privileges;

/// Settings fixed at load time.
#[derive(Clone, Debug, Default)]
pub struct LoadSettings {
    /// Trace only the targets, added with [`Probe::add_target`].
    pub only_targets: bool,
    /// Children of targets are targets.
    pub follow_children: bool,
    /// Stop targets at exec and when they map a CUDA library; discovery resumes them.
    pub hold_targets: bool,
    /// Count launches of kernels and graphs.
    pub launches: bool,
    /// Send a record for each launch attached to as a call.
    pub single_launches: bool,
    /// Capture call stacks for these, unless stacks are off.
    pub launch_stacks: bool,
    /// Send the events of a ledger besides memory calls.
    pub ledger: bool,
    /// Send begin and end of every call; otherwise of allocations only the end, and of frees only the
    /// begin.
    pub durations: bool,
    /// Receive the batches of collectors.
    pub batches: bool,
    /// How to capture call stacks.
    pub stacks: StackMode,
    /// Capture Python frames with the call stacks.
    pub python: bool,
    /// Send the allocations of framework allocators.
    pub tensors: bool,
    /// Send the requested sizes too.
    pub requests: bool,
    /// Kind of attachment; `None` for the best supported.
    pub kind: Option<AttachKind>,
    /// Maps with another number of entries than the default.
    pub map_entries: Vec<MapEntries>,
}

/// The loaded programs; dropping it detaches them.
pub struct Probe {
    /// Kind of attachment in use.
    pub kind: AttachKind,
    pub(super) stacks: StackMode,
    pub(super) batches: bool,
    // Before `skeleton`, so that the links are dropped first.
    pub(super) links: Vec<(Option<FileProbes>, Link)>,
    /// Dropped after the links, whose probes the kernel side identifies by these.
    files: Vec<(Option<FileProbes>, File)>,
    /// The kernel can restrict a probe to one process. Otherwise the probes fire in all processes, and
    /// the programs check the process.
    filters_processes: bool,
    pub(super) skeleton: GpuprobeSkel<'static>,
    /// The kinds that failed, with their errors, for `doctor`.
    pub refused: Vec<(AttachKind, String)>,
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.detach();
    }
}

impl Probe {
    /// Loads the programs and runs the self-test.
    ///
    /// # Errors
    /// Returns an error with the kernel's reason, and what to do about it if known.
    pub fn load(settings: &LoadSettings) -> Result<Self> {
        let kinds = settings.kind.map_or(AttachKind::ALL.to_vec(), |k| vec![k]);
        let (probe, refused) =
            kind::first_that_works(&kinds, |kind| Self::load_kind(settings, kind));
        if let Some(mut probe) = probe {
            probe.refused = refused;
            return Ok(probe);
        }
        if let Some(cause) = known_cause() {
            bail!("cannot load BPF programs: {cause}");
        }
        let needs_more = !privileges::has(Capability::CAP_SYS_ADMIN);
        let hint = "perf-event uprobes need CAP_SYS_ADMIN; run as root (sudo)";
        if let [(kind, why)] = &refused[..] {
            let hint = match needs_more && kind.is_one_by_one() {
                true => format!("; {hint}"),
                false => String::new(),
            };
            bail!("{kind} failed: {why}{hint}");
        }
        let mut reasons: Vec<_> = refused.iter().map(|(k, e)| format!("{k}: {e}")).collect();
        if needs_more {
            reasons.push(hint.to_owned());
        }
        Err(anyhow!("{}", reasons.join("; ")).context(
            "the kernel supports no kind of uprobe attachment (`gpuprobe doctor` has details)",
        ))
    }

    fn load_kind(settings: &LoadSettings, kind: AttachKind) -> Result<Self> {
        let has_types = types::kernel_has_types();
        if kind.needs_types() && !has_types {
            bail!(
                "the kernel has no BTF ({}); use one with CONFIG_DEBUG_INFO_BTF",
                types::KERNEL_BTF
            );
        }
        // The skeleton borrows its object for its whole life, which is that of the program.
        let object: &'static mut MaybeUninit<OpenObject> =
            Box::leak(Box::new(MaybeUninit::uninit()));
        let mut builder = GpuprobeSkelBuilder::default();
        // The file must be open until the object is loaded.
        let no_types = (!has_types).then(types::no_types_file).transpose()?;
        if let Some((_, path)) = &no_types {
            builder.obj_builder.btf_custom_path(path)?;
        }
        let mut open = builder.open(object).context("cannot open the BPF object")?;
        configure(&mut open, settings, kind)?;
        settings
            .map_entries
            .iter()
            .try_for_each(|map| map.apply(open.open_object_mut()))?;
        share(&mut open)?;
        let skeleton = open
            .load()
            .context("the kernel rejected the BPF programs")?;
        drop(no_types);
        let mut probe = Self {
            kind,
            stacks: settings.stacks,
            batches: settings.batches,
            links: Vec::new(),
            files: Vec::new(),
            filters_processes: false,
            skeleton,
            refused: Vec::new(),
        };
        // Entry 0 is for processes without an entry: no address is code.
        probe.enter_code(0, &RawCode::new_zeroed())?;
        probe.attach_tasks(settings)?;
        probe.self_test()?;
        Ok(probe)
    }

    fn attach_tasks(&mut self, settings: &LoadSettings) -> Result<()> {
        let progs = &self.skeleton.progs;
        let mut tracepoints = vec![
            (&progs.task_exit, "sched_process_exit"),
            (&progs.task_exec, "sched_process_exec"),
            (&progs.task_rename, "task_rename"),
        ];
        if settings.follow_children && types::kernel_has_types() {
            tracepoints.push((&progs.task_fork, "sched_process_fork"));
        }
        for (program, name) in tracepoints {
            let link = program
                .attach_raw_tracepoint(name)
                .with_context(|| format!("cannot attach to the raw tracepoint {name}"))?;
            self.links.push((None, link));
        }
        Ok(())
    }

    fn self_test(&mut self) -> Result<()> {
        let point = ProbePoint {
            offset: attach::own_file_offset(kind::self_test_address())?,
            cookie: u64::from(table::SELF_TEST_ROW),
        };
        let own_pid = i32::try_from(std::process::id())?;
        let attached = self.attach_calls("/proc/self/exe", &[point], &[own_pid])?;
        kind::call_self_test();
        self.check_recorded()?;
        // Linux 6.6 to 6.9 filter by thread id: only the main thread of the process passes.
        self.bss()?.selftest_seen = 0;
        std::thread::scope(|scope| {
            scope.spawn(kind::call_self_test);
        });
        self.filters_processes = self.check_recorded().is_ok();
        // Detaching waits for grace periods: kept until the end.
        self.keep(None, attached);
        Ok(())
    }

    /// Checks that entry and return of the self-test's function were recorded.
    fn check_recorded(&mut self) -> Result<()> {
        match self.bss()?.selftest_seen {
            3 => Ok(()),
            0 => bail!("self-test failed: the probe attached but never fired"),
            1 => bail!("self-test failed: the probe attached but fired at no return"),
            _ => bail!("self-test failed: the probe attached but fired at no entry"),
        }
    }

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

    fn attach(
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

    /// Keeps probes until their group is released, or this is dropped.
    pub fn keep(&mut self, group: Option<FileProbes>, attached: Attached) {
        let links = attached.links.into_iter();
        self.links.extend(links.map(|link| (group, link)));
        let files = attached.files.into_iter();
        self.files.extend(files.map(|file| (group, file)));
    }

    /// Detaches the probes of `group` and closes their file.
    pub fn release(&mut self, group: FileProbes) {
        let links = self.links.extract_if(.., |(of, _)| *of == Some(group));
        let files = self.files.extract_if(.., |(of, _)| *of == Some(group));
        Attached {
            links: links.map(|(_, link)| link).collect(),
            files: files.map(|(_, file)| file).collect(),
        }
        .remove();
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

/// Whether the kernel supports BPF ring buffers, by creating one. They are required.
pub fn has_ring_buffers() -> bool {
    MapType::RingBuf.is_supported().unwrap_or(false)
}

/// Whether a seccomp filter restricts this process.
fn is_filtered() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line == "Seccomp:\t2")
}

/// The cause of a failed load, with what to do about it, if it is a usual one.
fn known_cause() -> Option<&'static str> {
    let admin = privileges::has(Capability::CAP_SYS_ADMIN);
    if !admin
        && !privileges::BPF
            .iter()
            .all(|&needed| privileges::has(needed))
    {
        Some("CAP_BPF and CAP_PERFMON are needed; run gpuprobe as root (sudo)")
    } else if !has_ring_buffers() && is_filtered() {
        Some(
            "the seccomp profile of this container may forbid bpf; use one that allows bpf and \
             perf_event_open, or none (--security-opt seccomp=unconfined)",
        )
    } else if !has_ring_buffers() {
        Some("this kernel has no BPF ring buffers; Linux 5.8 or newer is needed")
    } else {
        None
    }
}
