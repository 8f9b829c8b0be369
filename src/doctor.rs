//! `gpuprobe doctor`: checks of the features on this machine, with what to do about missing ones.

mod verdict;

use std::collections::HashSet;
use std::fmt::Display;
use std::io::{self, StdoutLock, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use caps::Capability;

use crate::host::nvml::Nvml;
use crate::host::process;
use crate::host::process::ProcessHandle;
use crate::host::{LibraryRole, MappedLibrary, cupti, gpus, system};
use crate::probe::{
    AttachKind, KERNEL_BTF, LoadSettings, Probe, arm64, has_btf, has_ring_buffers, known_cause,
};
use gpuprobe_cuda::table::SELF_TEST_ROW;
use gpuprobe_cuda::{FUNCTIONS, Framework, Layer};
use gpuprobe_model::text::printable;
use gpuprobe_os::{kernel, privileges};
use gpuprobe_stacks::AddressSpaces;
use gpuprobe_stacks::helper::{FileReader, HelperHost, ProcessReader};
use gpuprobe_stacks::instruction::FirstInstruction;
use gpuprobe_stacks::python::process::Interpreters;
use verdict::verdict;

/// Prints one line per fact, with function names if `verbose`, and a verdict. The exit status is 0
/// if tracing works.
///
/// # Errors
/// Returns an error if standard output cannot be written to, or there is no process `pid`.
pub fn run(pid: Option<u32>, verbose: bool) -> Result<ExitCode> {
    if let Some(pid) = pid {
        ProcessHandle::of(pid).with_context(|| format!("there is no process with id {pid}"))?;
    }
    let mut doctor = Doctor {
        out: io::stdout().lock(),
        written: Ok(()),
        verbose,
        reader: FileReader::new(HelperHost::Process),
    };
    let works = doctor.check(pid);
    match doctor.written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error).context("cannot write to standard output"),
        Ok(()) if works => Ok(ExitCode::SUCCESS),
        Ok(()) => Ok(ExitCode::FAILURE),
    }
}

/// Grade of what works.
const OK: &str = "ok";
/// Grade of what is good to know.
const NOTE: &str = "note";
/// Grade of what is needed and is not there.
const MISSING: &str = "MISSING";

/// The checks, and where their results go.
struct Doctor {
    out: StdoutLock<'static>,
    /// Whether all of it could be written.
    written: io::Result<()>,
    /// Whether to print the names of functions.
    verbose: bool,
    /// Reads the files of processes.
    reader: FileReader,
}

impl Doctor {
    /// Writes what was found, or what to do. Control characters are escaped: other users can choose paths.
    fn line(&mut self, grade: &str, what: &str, found: impl Display) {
        let found = printable(&found.to_string());
        self.write(&format!("{grade:<7} {what:<20} {found}"));
    }

    /// Writes what was found of what is needed, or what to do.
    fn needed(&mut self, what: &str, found: Option<impl Display>, way_out: &str) {
        match found {
            Some(found) => self.line(OK, what, found),
            None => self.line(MISSING, what, way_out),
        }
    }

    fn write(&mut self, line: &str) {
        if self.written.is_ok() {
            self.written = writeln!(self.out, "{line}");
        }
    }

    /// Checks everything. Returns whether tracing works.
    fn check(&mut self, pid: Option<u32>) -> bool {
        let kernel = format!("{} {}", kernel::release(), std::env::consts::ARCH);
        self.line(OK, "kernel", kernel);
        let no_btf = format!("no {KERNEL_BTF}; use a kernel with CONFIG_DEBUG_INFO_BTF");
        self.needed("BTF", has_btf().then_some(KERNEL_BTF), &no_btf);
        self.check_capabilities();
        let permitted = arm64::permit(std::env::consts::ARCH, false);
        if let Err(refused) = &permitted {
            self.line(NOTE, "arm64", refused);
        }
        let rings = has_ring_buffers().then_some("the kernel makes them");
        let no_rings = "Linux 5.15 or newer, or the capabilities above";
        self.needed("ring buffers", rings, no_rings);
        let no_attaching = match self.check_attach_kinds() {
            false => Some(why_no_attaching()),
            true if permitted.is_err() => Some("on arm64; give --allow-arm64".to_owned()),
            true => None,
        };
        match gpus::on_host() {
            Some(count) => self.line(OK, "NVIDIA driver", format!("loaded, {count} GPU(s)")),
            None => self.line(NOTE, "NVIDIA driver", "not loaded on this host"),
        }
        let has_cupti = self.check_cupti();
        match pid {
            Some(pid) => self.check_process(pid),
            None => self.check_host(),
        }
        let verdict = verdict(no_attaching.as_deref(), has_cupti, Nvml::open().is_some());
        self.write(&format!("\n{}", printable(&verdict)));
        no_attaching.is_none()
    }

    fn check_capabilities(&mut self) {
        for (capability, why) in [
            (Capability::CAP_BPF, "needed to load BPF programs"),
            (Capability::CAP_PERFMON, "needed to attach them"),
            (
                Capability::CAP_SYS_PTRACE,
                "needed for processes of other users",
            ),
            (
                Capability::CAP_SYS_ADMIN,
                "needed for perf-event uprobes, and for deleted libraries",
            ),
        ] {
            let (grade, found) = match privileges::has(capability) {
                true => (OK, why.to_owned()),
                false if privileges::BPF.contains(&capability) => {
                    (MISSING, format!("{why}; run as root (sudo)"))
                }
                false => (NOTE, format!("missing; {why}")),
            };
            self.line(grade, &capability.to_string(), found);
        }
    }

    /// Runs the self-test with every kind of attachment.
    fn check_attach_kinds(&mut self) -> bool {
        let mut best = None;
        // Without the right to load them, each kind would say the same.
        let may_load = privileges::missing(privileges::BPF).next().is_none();
        for kind in AttachKind::ALL.into_iter().filter(|_| may_load) {
            let settings = LoadSettings {
                kind: Some(kind),
                ..LoadSettings::default()
            };
            let (grade, found) = match Probe::load(&settings, || (), |_, ()| Ok(())) {
                Ok(_) => (OK, "entry and return were recorded".to_owned()),
                Err(error) => (NOTE, format!("{error:#}")),
            };
            best = best.or((grade == OK).then_some(kind));
            let found = found.trim_start_matches(kind.name()).trim_start();
            self.line(grade, kind.name(), found);
        }
        let chosen = best.map(|kind| format!("{kind} will be used"));
        let way_out = "no kind is supported; see the lines above";
        self.needed("attaching", chosen, way_out);
        best.is_some()
    }

    /// Looks for libcupti, which only `--activity` needs.
    fn check_cupti(&mut self) -> bool {
        let found = cupti::on_host(Path::new("/"));
        for path in &found {
            self.line(OK, "libcupti", path.display());
        }
        if found.is_empty() {
            let way_out = "not in the usual folders; --activity also finds one that comes with the command, as with \
                           PyTorch, or the one in GPUPROBE_CUPTI";
            self.line(NOTE, "libcupti", way_out);
        }
        !found.is_empty()
    }

    fn check_host(&mut self) {
        let libraries = system::libraries();
        let is_driver = |library: &MappedLibrary| library.role == LibraryRole::Cuda(Layer::Driver);
        if !libraries.iter().any(is_driver) {
            let way_out = "not in the usual folders; libraries are found when programs load them";
            self.line(NOTE, "libcuda", way_out);
        }
        let mapped = process::all_pids()
            .into_iter()
            .flat_map(|pid| process::mapped(pid).unwrap_or_default());
        let mapped = mapped.filter_map(|file| file.open().ok());
        let mut seen = HashSet::new();
        for library in libraries.into_iter().chain(mapped) {
            if seen.insert(library.id) {
                self.check_library(&library);
            }
        }
    }

    fn check_process(&mut self, pid: u32) {
        let mapped = match process::mapped(pid) {
            Ok(mapped) => mapped,
            Err(error) => {
                let way_out = format!("cannot be inspected ({error}); run as root (sudo)");
                return self.line(MISSING, "process", way_out);
            }
        };
        let is_cuda = |role| matches!(role, LibraryRole::Cuda(_));
        if !mapped.iter().any(|m| is_cuda(m.role)) {
            let waits = "no CUDA library is loaded yet; tracing waits for it";
            self.line(NOTE, "process", waits);
        }
        for file in &mapped {
            match file.open() {
                Ok(library) => self.check_library(&library),
                Err(error) => self.line(MISSING, "library", format!("{error:#}")),
            }
        }
        self.check_python(pid);
    }

    /// Checks whether stacks of the process have Python frames.
    fn check_python(&mut self, pid: u32) {
        let memory = ProcessReader::new(HelperHost::Process);
        let mut spaces = AddressSpaces::new(self.reader.clone(), memory);
        spaces.refresh(pid);
        let Some(found) = Interpreters::default().find(pid, &spaces) else {
            return;
        };
        let (grade, found) = match found.map(|running| running.minor()) {
            Ok(minor) => (OK, format!("CPython 3.{minor}: stacks have its frames")),
            Err(why) => (MISSING, format!("no Python frames: {why}")),
        };
        self.line(grade, "Python", found);
    }

    fn check_loader(&mut self, library: &MappedLibrary) {
        let path = library.path.display();
        let missed = "no _dl_debug_state; libraries loaded later are missed";
        let (grade, found) = match library.rendezvous(&self.reader) {
            Ok(Some(_)) => (OK, format!("{path}: dlopen is noticed")),
            Ok(None) => (MISSING, format!("{path}: {missed}")),
            Err(error) => (MISSING, format!("{error:#}")),
        };
        self.line(grade, "dynamic loader", found);
    }

    fn check_library(&mut self, library: &MappedLibrary) {
        let path = library.path.display();
        let layer = match library.role {
            LibraryRole::Cuda(layer) => layer,
            LibraryRole::Framework => Layer::Framework,
            LibraryRole::Library => Layer::Library,
            LibraryRole::Requests => return,
            LibraryRole::Loader => return self.check_loader(library),
        };
        let framework = library.framework();
        let name = framework.map_or(layer.library(), Framework::name);
        let functions = match library.functions(&self.reader, layer) {
            Ok(functions) => functions,
            Err(error) => return self.line(MISSING, name, format!("{error:#}")),
        };
        let found: Vec<_> = functions.iter().map(|f| f.symbol).collect();
        if found.is_empty() {
            let none = format!("{path}: none of the traced functions");
            return self.line(MISSING, name, none);
        }
        let is_there = |row| row == SELF_TEST_ROW || functions.iter().any(|f| f.row == row);
        let absent: Vec<_> = (0u16..)
            .zip(FUNCTIONS)
            .filter(|(row, f)| f.layer == layer && f.framework == framework && !is_there(*row))
            .map(|(_, f)| f.symbol)
            .collect();
        let (count, all) = (found.len(), found.len() + absent.len());
        let mut summary = format!("{path}: has {count} of the {all} functions that are traced");
        if self.verbose {
            summary = format!("{summary}: {}", found.join(" "));
        }
        self.line(OK, name, summary);
        for (first, what) in FIRST_INSTRUCTIONS {
            let affected = functions.iter().filter(|f| f.first == first);
            let affected: Vec<_> = affected.map(|f| f.symbol).collect();
            if !affected.is_empty() {
                self.line(NOTE, name, format!("{path}: {what} {}", affected.join(" ")));
            }
        }
        if self.verbose && !absent.is_empty() {
            let absent = format!("{path}: not exported: {}", absent.join(" "));
            self.line(NOTE, name, absent);
        }
    }
}

/// Functions that the kernel probes slowly, or not at all, by their first instruction.
const FIRST_INSTRUCTIONS: [(FirstInstruction, &str); 3] = [
    (
        FirstInstruction::Stepped,
        "slow: the kernel cannot emulate the first instruction of",
    ),
    (
        FirstInstruction::Replaced,
        "not probed without --allow-nop5: on this kernel, probes can corrupt programs at the 5-byte nop \
         that is the first instruction of",
    ),
    (
        FirstInstruction::Refused,
        "not probed: the kernel allows no probe on the first instruction of",
    ),
];

/// The reason why attaching fails, with what to do about it, as in the lines before.
fn why_no_attaching() -> String {
    let lacks = privileges::missing(privileges::BPF);
    let lacks: Vec<_> = lacks.map(ToString::to_string).collect();
    if !lacks.is_empty() {
        format!("no {}; run as root (sudo)", lacks.join(" and "))
    } else {
        let unknown = "the kernel supports no kind of attachment; see the lines above";
        known_cause().unwrap_or(unknown).to_owned()
    }
}
