//! `gpuprobe doctor`: checks of the features on this machine, with what to do about missing ones.

mod verdict;

use std::collections::HashSet;
use std::fmt::Display;
use std::io::{self, Write};
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
use gpuprobe_cuda::{FUNCTIONS, Layer};
use gpuprobe_model::text::printable;
use gpuprobe_os::{kernel, privileges};
use gpuprobe_stacks::AddressSpaces;
use gpuprobe_stacks::functions::FunctionInFile;
use gpuprobe_stacks::helper::{FileReader, HelperHost, ProcessReader};
use gpuprobe_stacks::instruction::FirstInstruction;
use gpuprobe_stacks::python::check::{self, Checked};
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
    let mut lines = DoctorLines {
        out: Box::new(io::stdout().lock()),
        verbose,
        reader: FileReader::new(HelperHost::Process),
    };
    let checked = check(&mut lines, pid);
    match checked {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::FAILURE),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}

/// Grade of what works.
const OK: &str = "ok";
/// Grade of what is good to know.
const NOTE: &str = "note";
/// Grade of what is needed and is not there.
const MISSING: &str = "MISSING";

/// Output of the checks.
struct DoctorLines {
    out: Box<dyn Write>,
    /// Whether to print the names of functions.
    verbose: bool,
    /// Reads the files of processes.
    reader: FileReader,
}

impl DoctorLines {
    /// Writes what was found, or what to do. Control characters are escaped: other users can choose paths.
    fn line(&mut self, grade: &str, what: &str, found: impl Display) -> io::Result<()> {
        let found = printable(&found.to_string());
        writeln!(self.out, "{grade:<7} {what:<20} {found}")
    }
}

fn check(lines: &mut DoctorLines, pid: Option<u32>) -> io::Result<bool> {
    let kernel = format!("{} {}", kernel::release(), std::env::consts::ARCH);
    lines.line(OK, "kernel", kernel)?;
    let no_btf = format!("no {KERNEL_BTF}; use a kernel with CONFIG_DEBUG_INFO_BTF");
    match has_btf() {
        true => lines.line(OK, "BTF", KERNEL_BTF)?,
        false => lines.line(MISSING, "BTF", no_btf)?,
    }
    check_capabilities(lines)?;
    let permitted = arm64::permit(std::env::consts::ARCH, false);
    if let Err(refused) = &permitted {
        lines.line(NOTE, "arm64", refused)?;
    }
    let no_rings = "Linux 5.15 or newer, or the capabilities above";
    match has_ring_buffers() {
        true => lines.line(OK, "ring buffers", "the kernel makes them")?,
        false => lines.line(MISSING, "ring buffers", no_rings)?,
    }
    let no_attaching = match check_attach_kinds(lines)? {
        false => Some(why_no_attaching()),
        true if permitted.is_err() => Some("on arm64; give --allow-arm64".to_owned()),
        true => None,
    };
    match gpus::on_host() {
        Some(count) => lines.line(OK, "NVIDIA driver", format!("loaded, {count} GPU(s)"))?,
        None => lines.line(NOTE, "NVIDIA driver", "not loaded on this host")?,
    }
    let has_cupti = check_cupti(lines)?;
    match pid {
        Some(pid) => check_process(lines, pid)?,
        None => check_host(lines)?,
    }
    let verdict = verdict(no_attaching.as_deref(), has_cupti, Nvml::open().is_some());
    writeln!(lines.out, "\n{}", printable(&verdict))?;
    Ok(no_attaching.is_none())
}

/// The reason why attaching fails, with what to do about it, as in the lines before.
fn why_no_attaching() -> String {
    let lacks: Vec<_> = privileges::BPF
        .iter()
        .filter(|needed| !privileges::has(**needed))
        .map(ToString::to_string)
        .collect();
    if !lacks.is_empty() {
        format!("no {}; run as root (sudo)", lacks.join(" and "))
    } else {
        let unknown = "the kernel supports no kind of attachment; see the lines above";
        known_cause().unwrap_or(unknown).to_owned()
    }
}

/// Looks for libcupti, which only `--activity` needs.
fn check_cupti(lines: &mut DoctorLines) -> io::Result<bool> {
    let found = cupti::on_host(Path::new("/"));
    for path in &found {
        lines.line(OK, "libcupti", path.display())?;
    }
    if found.is_empty() {
        lines.line(
            NOTE,
            "libcupti",
            "not in the usual folders; --activity also finds one that comes with the command, as with \
             PyTorch, or the one in GPUPROBE_CUPTI",
        )?;
    }
    Ok(!found.is_empty())
}

fn check_capabilities(lines: &mut DoctorLines) -> io::Result<()> {
    let wanted = [
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
    ];
    for (capability, why) in wanted {
        let (grade, found) = match privileges::has(capability) {
            true => (OK, why.to_owned()),
            false if privileges::BPF.contains(&capability) => {
                (MISSING, format!("{why}; run as root (sudo)"))
            }
            false => (NOTE, format!("missing; {why}")),
        };
        lines.line(grade, &capability.to_string(), found)?;
    }
    Ok(())
}

/// Runs the self-test with every kind of attachment.
fn check_attach_kinds(lines: &mut DoctorLines) -> io::Result<bool> {
    let mut best = None;
    for kind in AttachKind::ALL {
        let settings = LoadSettings {
            kind: Some(kind),
            ..LoadSettings::default()
        };
        match Probe::load(&settings) {
            Ok(_) => {
                best = best.or(Some(kind));
                lines.line(OK, kind.name(), "entry and return were recorded")?;
            }
            Err(error) => {
                let why = format!("{error:#}");
                let why = why.trim_start_matches(kind.name()).trim_start();
                lines.line(NOTE, kind.name(), why)?;
            }
        }
    }
    match best {
        Some(kind) => lines.line(OK, "attaching", format!("{kind} will be used"))?,
        None => {
            let way_out = "no kind is supported; see the lines above";
            lines.line(MISSING, "attaching", way_out)?;
        }
    }
    Ok(best.is_some())
}

fn check_host(lines: &mut DoctorLines) -> io::Result<()> {
    let libraries = system::libraries();
    let is_driver = |library: &MappedLibrary| library.role == LibraryRole::Cuda(Layer::Driver);
    let has_driver = libraries.iter().any(is_driver);
    let mapped = process::all_pids()
        .into_iter()
        .flat_map(|pid| process::mapped(pid).unwrap_or_default());
    if !has_driver {
        let way_out = "not in the usual folders; libraries are found when programs load them";
        lines.line(NOTE, "libcuda", way_out)?;
    }
    let mut seen = HashSet::new();
    let mapped = mapped.filter_map(|file| file.open().ok());
    for library in libraries.into_iter().chain(mapped) {
        if seen.insert(library.id) {
            check_library(lines, &library)?;
        }
    }
    Ok(())
}

fn check_process(lines: &mut DoctorLines, pid: u32) -> io::Result<()> {
    let mapped = match process::mapped(pid) {
        Ok(mapped) => mapped,
        Err(error) => {
            let way_out = format!("cannot be inspected ({error}); run as root (sudo)");
            return lines.line(MISSING, "process", way_out);
        }
    };
    let is_cuda = |role| matches!(role, LibraryRole::Cuda(_));
    if !mapped.iter().any(|m| is_cuda(m.role)) {
        let waits = "no CUDA library is loaded yet; tracing waits for it";
        lines.line(NOTE, "process", waits)?;
    }
    for file in &mapped {
        match file.open() {
            Ok(library) => check_library(lines, &library)?,
            Err(error) => lines.line(MISSING, "library", format!("{error:#}"))?,
        }
    }
    check_python(lines, pid)
}

/// Checks whether stacks of the process have Python frames.
fn check_python(lines: &mut DoctorLines, pid: u32) -> io::Result<()> {
    let mut spaces = AddressSpaces::new(
        lines.reader.clone(),
        ProcessReader::new(HelperHost::Process),
    );
    spaces.refresh(pid);
    let Some(found) = Interpreters::default().find(pid, &spaces) else {
        return Ok(());
    };
    let checked = found.and_then(|running| {
        let checked = check::check(pid, &running, &spaces)?;
        Ok((checked, running.interpreter().layout.version))
    });
    let (grade, found) = match checked {
        Ok((Checked::Threads(count), version)) => (
            OK,
            format!("{version}: stacks have its frames; {count} thread(s) checked"),
        ),
        Ok((Checked::NotBegun, version)) => (NOTE, format!("{version}, not initialised yet")),
        Err(why) => (MISSING, format!("no Python frames: {why}")),
    };
    lines.line(grade, "Python", found)
}

fn check_loader(lines: &mut DoctorLines, library: &MappedLibrary) -> io::Result<()> {
    let path = library.path.display();
    let missed = "no _dl_debug_state; libraries loaded later are missed";
    let (grade, found) = match library.rendezvous(&lines.reader) {
        Ok(Some(_)) => (OK, format!("{path}: dlopen is noticed")),
        Ok(None) => (MISSING, format!("{path}: {missed}")),
        Err(error) => (MISSING, format!("{error:#}")),
    };
    lines.line(grade, "dynamic loader", found)
}

fn check_library(lines: &mut DoctorLines, library: &MappedLibrary) -> io::Result<()> {
    let path = library.path.display();
    let layer = match library.role {
        LibraryRole::Cuda(layer) => layer,
        LibraryRole::Framework => Layer::Framework,
        LibraryRole::Requests => return Ok(()),
        LibraryRole::Loader => return check_loader(lines, library),
    };
    let name = layer.library();
    let functions = match library.functions(&lines.reader, layer) {
        Ok(functions) => functions,
        Err(error) => return lines.line(MISSING, name, format!("{error:#}")),
    };
    let found: Vec<_> = functions.iter().map(|f| f.symbol).collect();
    if found.is_empty() {
        let none = format!("{path}: none of the traced functions");
        return lines.line(MISSING, name, none);
    }
    let is_absent = |row: u16| {
        row != gpuprobe_cuda::table::SELF_TEST_ROW && !functions.iter().any(|f| f.row == row)
    };
    let absent: Vec<_> = (0u16..)
        .zip(FUNCTIONS)
        .filter(|(row, f)| f.layer == layer && is_absent(*row))
        .map(|(_, f)| f.symbol)
        .collect();
    let (count, all) = (found.len(), found.len() + absent.len());
    let mut summary = format!("{path}: exports {count} of the {all} functions that are traced");
    if lines.verbose {
        summary = format!("{summary}: {}", found.join(" "));
    }
    lines.line(OK, name, summary)?;
    note_instructions(lines, (name, library), &functions)?;
    if lines.verbose && !absent.is_empty() {
        let absent = format!("{path}: not exported: {}", absent.join(" "));
        lines.line(NOTE, name, absent)?;
    }
    Ok(())
}

/// Notes on functions that the kernel probes slowly, or not at all.
fn note_instructions(
    lines: &mut DoctorLines,
    (name, library): (&str, &MappedLibrary),
    functions: &[FunctionInFile],
) -> io::Result<()> {
    let path = library.path.display();
    for (first, what) in [
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
    ] {
        let affected = functions.iter().filter(|f| f.first == first);
        let affected: Vec<_> = affected.map(|f| f.symbol).collect();
        if !affected.is_empty() {
            lines.line(NOTE, name, format!("{path}: {what} {}", affected.join(" ")))?;
        }
    }
    Ok(())
}
