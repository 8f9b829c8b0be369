//! Loading the BPF programs with the best supported kind of attachment.

use super::configure::{LargeMap, configure};
use std::fs::File;
use std::io::Write;
use std::iter;
use std::mem::MaybeUninit;
use std::num::NonZeroU32;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use anyhow::{Context, Error, Result, anyhow, bail};
use caps::Capability;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapType, OpenObject, ProgramType, libbpf_sys};
use nix::sys::memfd::{MFdFlags, memfd_create};
use zerocopy::FromZeros;

use super::attach::{self, ProbePoint, Purpose};
use super::btf::{self, Wanted};
use super::kind::{self, AttachKind};
use super::skeleton::{self, GpuprobeSkel, GpuprobeSkelBuilder, types};
use crate::probe::StackMode;
use gpuprobe_cuda::{Modes, table};
use gpuprobe_model::abi::RawCode;
use gpuprobe_os::{privileges, proc};

/// Settings that are fixed while the programs are loaded. By default they do what every session needs.
#[derive(Default)]
pub struct LoadSettings {
    /// Trace only the targets, added with [`Probe::add_target`].
    pub only_targets: bool,
    /// Children of targets are targets.
    pub follow_children: bool,
    /// Stop targets at exec and when they map a CUDA library; discovery resumes them.
    pub hold_targets: bool,
    /// What is counted and sent.
    pub modes: Modes,
    /// Send a record for each launch.
    pub single_launches: bool,
    /// Send begin and end of every call; otherwise of allocations only the end, and of frees only the begin.
    pub durations: bool,
    /// How call stacks are captured.
    pub stacks: StackMode,
    /// Capture Python frames with the call stacks.
    pub python: bool,
    /// Send the allocations of frameworks.
    pub tensors: bool,
    /// Send the sizes that were asked for, too.
    pub requests: bool,
    /// Kind of attachment; `None` for the best supported.
    pub kind: Option<AttachKind>,
    /// Maps with another number of entries than the default.
    pub map_entries: Vec<(String, NonZeroU32)>,
}

/// The loaded programs and their maps, which several threads use.
pub struct Probe {
    /// Kind of attachment in use.
    pub kind: AttachKind,
    pub(super) stacks: StackMode,
    pub(super) batches: bool,
    /// Links of the whole session.
    kept: Mutex<Vec<Link>>,
    /// The kernel can restrict a probe to one process. Otherwise the probes fire in all processes, and
    /// the programs check the process.
    pub(super) filters_processes: AtomicBool,
    /// The globals of the programs: memory of the skeleton, so nobody else keeps them.
    globals: Mutex<&'static mut types::bss>,
    pub(super) skeleton: GpuprobeSkel<'static>,
}

impl Probe {
    /// Loads the programs with the best kind of attachment that the self-test finds working. `start` is called while
    /// they are loaded, `begin` with what that returned before the self-test, which waits for the kernel.
    ///
    /// # Errors
    /// Returns an error with the kernel's reason, and what to do about it if known.
    pub fn load<S, B>(
        settings: &LoadSettings,
        start: impl FnOnce() -> S,
        begin: impl Fn(&Arc<Self>, &S) -> Result<B>,
    ) -> Result<(Arc<Self>, S, B)> {
        let kinds = settings.kind.as_ref().map(std::slice::from_ref);
        let kinds = kinds.unwrap_or(&AttachKind::ALL);
        if !has_btf() {
            bail!("cannot load BPF programs: {NO_BTF}");
        }
        let mut reasons = Vec::new();
        let (mut start, mut started) = (Some(start), None);
        for &kind in kinds {
            let loaded = thread::scope(|scope| {
                let (maps, created) = mpsc::channel();
                let loaded = scope.spawn(move || Self::load_kind(settings, kind, maps));
                let _ = created.recv();
                started = started.take().or_else(|| start.take().map(|start| start()));
                loaded.join().map_err(|_| anyhow!("a thread panicked"))?
            });
            // On this thread: Linux 6.6 to 6.9 filter by thread id.
            let loaded = loaded.and_then(|probe| {
                let begun = begin(&probe, started.as_ref().context("nothing was started")?)?;
                probe.self_test()?;
                let started = started.take().context("nothing was started")?;
                Ok((probe, started, begun))
            });
            match loaded {
                Ok(loaded) => return Ok(loaded),
                Err(error) => {
                    let failed = format!("{kind} failed: {error:#}");
                    tracing::debug!("{failed}");
                    reasons.push(failed);
                }
            }
        }
        if let Some(cause) = known_cause() {
            bail!("cannot load BPF programs: {cause}");
        }
        if kinds.contains(&AttachKind::Perf) && !privileges::has(Capability::CAP_SYS_ADMIN) {
            reasons.push("perf-event uprobes need CAP_SYS_ADMIN; run as root (sudo)".to_owned());
        }
        let reasons = reasons.join("; ");
        match kinds.len() {
            1 => bail!("{reasons}"),
            _ => bail!(
                "the kernel supports no kind of uprobe attachment (`gpuprobe doctor` has details): {reasons}"
            ),
        }
    }

    /// Drops `maps_are_made` once only programs are left to load, which keeps one processor busy.
    fn load_kind(
        settings: &LoadSettings,
        kind: AttachKind,
        maps_are_made: mpsc::Sender<()>,
    ) -> Result<Arc<Self>> {
        // The skeleton borrows its object for its whole life, which is that of the program.
        let object: &'static mut MaybeUninit<OpenObject> =
            Box::leak(Box::new(MaybeUninit::uninit()));
        // Written once the object, which names it, says what is wanted.
        let mut types = File::from(memfd_create(c"btf", MFdFlags::MFD_CLOEXEC)?);
        let mut builder = GpuprobeSkelBuilder::default();
        let path = format!("/proc/self/fd/{}", types.as_raw_fd());
        builder.obj_builder.btf_custom_path(path)?;
        let mut open = builder.open(object).context("cannot open the BPF object")?;
        configure(&mut open, settings, kind)?;
        let wanted = Wanted::of(&skeleton::types_of(&open)?);
        let maps = LargeMap::all(&mut open)?;
        let maps = Mutex::new(maps.into_iter());
        let create = || {
            let next = || maps.lock().unwrap_or_else(PoisonError::into_inner).next();
            let created = iter::from_fn(|| next().map(|map| map.create()));
            created.collect::<Result<Vec<_>>>()
        };
        let created = thread::scope(|scope| {
            let beside = scope.spawn(create);
            let kernel = std::fs::read(KERNEL_BTF).context("cannot read the kernel's BTF")?;
            let reduced = btf::reduced(&kernel, &wanted);
            types.write_all(&reduced.unwrap_or(kernel))?;
            skeleton::prepare(&mut open).context("the kernel rejected the BPF maps")?;
            let mut created = create()?;
            created.extend(beside.join().map_err(|_| anyhow!("a thread panicked"))??);
            Ok::<_, Error>(created)
        })?;
        skeleton::replace_maps(&mut open, &created)?;
        drop(maps_are_made);
        let mut skeleton = open
            .load()
            .context("the kernel rejected the BPF programs")?;
        let bss = skeleton.maps.bss_data.take();
        let probe = Self {
            kind,
            stacks: settings.stacks,
            batches: settings.modes.activity,
            kept: Mutex::default(),
            filters_processes: AtomicBool::new(false),
            globals: Mutex::new(bss.context("the BPF object has no mapped globals")?),
            skeleton,
        };
        // Entry 0 is for processes without an entry: no address is code.
        probe.enter_code(0, &RawCode::new_zeroed())?;
        probe.keep(probe.attach_tasks(settings.follow_children)?);
        Ok(Arc::new(probe))
    }

    fn keep(&self, links: Vec<Link>) {
        let kept = self.kept.lock();
        kept.unwrap_or_else(PoisonError::into_inner).extend(links);
    }

    fn self_test(&self) -> Result<()> {
        let point = ProbePoint {
            offset: attach::own_file_offset(kind::gpuprobe_self_test as *const () as u64)?,
            cookie: u64::from(table::SELF_TEST_ROW),
        };
        let (executable, own_pid) = (File::open("/proc/self/exe")?, std::process::id());
        let own_pid = [own_pid.cast_signed()];
        let links = self.attach(Purpose::Calls, &executable, &[point], &own_pid)?;
        self.keep(links);
        kind::gpuprobe_self_test();
        self.check_recorded()?;
        // Linux 6.6 to 6.9 filter by thread id: only the main thread of the process passes.
        self.bss().selftest_seen = 0;
        thread::scope(|scope| {
            scope.spawn(|| kind::gpuprobe_self_test());
        });
        let is_filtered = self.check_recorded().is_ok();
        self.filters_processes.store(is_filtered, Ordering::Relaxed);
        Ok(())
    }

    /// Checks that entry and return of the self-test's function were recorded.
    fn check_recorded(&self) -> Result<()> {
        match self.bss().selftest_seen {
            3 => Ok(()),
            0 => bail!("self-test failed: the probe attached but never fired"),
            1 => bail!("self-test failed: the probe attached but fired at no return"),
            _ => bail!("self-test failed: the probe attached but fired at no entry"),
        }
    }

    /// Stops holding processes from now on.
    pub fn stop_holding(&self) {
        self.bss().ending = 1;
    }

    pub(super) fn bss(&self) -> MutexGuard<'_, &'static mut types::bss> {
        self.globals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// BTF of the running kernel, by which libbpf finds the members of kernel structures.
pub const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";
const NO_BTF: &str = "there is no /sys/kernel/btf/vmlinux; a kernel with BTF (CONFIG_DEBUG_INFO_BTF) is needed, \
                      Linux 5.15 or newer";

/// Whether the running kernel provides BTF. It is required.
pub fn has_btf() -> bool {
    Path::new(KERNEL_BTF).exists()
}

/// Whether the kernel supports BPF ring buffers, by creating one. They are required.
pub fn has_ring_buffers() -> bool {
    MapType::RingBuf.is_supported().unwrap_or(false)
}

/// Whether programs on functions can read attach cookies, by loading one. They are required.
fn has_attach_cookies() -> bool {
    ProgramType::Kprobe
        .is_helper_supported(libbpf_sys::BPF_FUNC_get_attach_cookie)
        .unwrap_or(false)
}

/// Whether a seccomp filter restricts this process.
fn is_filtered() -> bool {
    proc::status(std::process::id()).is_ok_and(|status| status.seccomp == Some(2))
}

/// The cause of a failed load, with what to do about it, if it is a usual one.
pub fn known_cause() -> Option<&'static str> {
    let admin = privileges::has(Capability::CAP_SYS_ADMIN);
    if !has_btf() {
        Some(NO_BTF)
    } else if !admin && privileges::missing(privileges::BPF).next().is_some() {
        Some("CAP_BPF and CAP_PERFMON are needed; run gpuprobe as root (sudo)")
    } else if !has_ring_buffers() && is_filtered() {
        Some(
            "the seccomp profile of this container may forbid bpf; use one that allows bpf and \
             perf_event_open, or none (--security-opt seccomp=unconfined)",
        )
    } else if !has_ring_buffers() {
        Some("this kernel has no BPF ring buffers; Linux 5.15 or newer is needed")
    } else if !has_attach_cookies() {
        Some("this kernel has no attach cookies for uprobes; Linux 5.15 or newer is needed")
    } else {
        None
    }
}
