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
use verdict::{MachineFacts, verdict};

/// Prints one line per fact, with function names if `verbose`, and a verdict. The exit status is 0
/// if tracing works.
///
/// # Errors
/// Returns an error if standard output cannot be written to, or there is no process `pid`.
pub fn run(pid: Option<u32>, verbose: bool) -> Result<ExitCode> {
    let handle = pid
        .map(|pid| {
            ProcessHandle::of(pid).with_context(|| format!("there is no process with id {pid}"))
        })
        .transpose()?;
    let mut lines = DoctorLines {
        out: Box::new(io::stdout().lock()),
        verbose,
        reader: FileReader::new(HelperHost::Process),
    };
    let checked = check(&mut lines, handle);
    match checked {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::FAILURE),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}

/// Escapes control characters: other users can choose paths.
fn clean(found: impl Display) -> String {
    printable(&found.to_string())
}

/// Output of the checks.
struct DoctorLines {
    out: Box<dyn Write>,
    /// Whether to print the names of functions.
    verbose: bool,
    /// Reads the files of processes.
    reader: FileReader,
}

impl DoctorLines {
    fn ok(&mut self, what: &str, found: impl Display) -> io::Result<()> {
        writeln!(self.out, "ok      {what:<20} {}", clean(found))
    }

    fn note(&mut self, what: &str, found: impl Display) -> io::Result<()> {
        writeln!(self.out, "note    {what:<20} {}", clean(found))
    }

    fn missing(&mut self, what: &str, way_out: impl Display) -> io::Result<()> {
        writeln!(self.out, "MISSING {what:<20} {}", clean(way_out))
    }
}

fn check(lines: &mut DoctorLines, handle: Option<ProcessHandle>) -> io::Result<bool> {
    let mut found = MachineFacts {
        has_nvml: Nvml::open().is_some(),
        ..MachineFacts::default()
    };
    lines.ok(
        "kernel",
        format_args!("{} {}", kernel::release(), std::env::consts::ARCH),
    )?;
    if has_btf() {
        lines.ok("BTF", KERNEL_BTF)?;
    } else {
        let way_out = format_args!("no {KERNEL_BTF}; use a kernel with CONFIG_DEBUG_INFO_BTF");
        lines.missing("BTF", way_out)?;
    }
    check_capabilities(lines)?;
    let permitted = arm64::permit(std::env::consts::ARCH, false);
    if let Err(refused) = &permitted {
        lines.note("arm64", refused)?;
    }
    if has_ring_buffers() {
        lines.ok("ring buffers", "the kernel makes them")?;
    } else {
        lines.missing(
            "ring buffers",
            "Linux 5.15 or newer, or the capabilities above",
        )?;
    }
    let works = check_attach_kinds(lines)?;
    found.no_attaching = match works {
        true => permitted
            .err()
            .map(|_| "on arm64; give --allow-arm64".to_owned()),
        false => Some(why_no_attaching()),
    };
    match gpus::on_host() {
        Some(count) => lines.ok("NVIDIA driver", format_args!("loaded, {count} GPU(s)"))?,
        None => lines.note("NVIDIA driver", "not loaded on this host")?,
    }
    found.has_cupti = check_cupti(lines)?;
    match handle {
        Some(handle) => check_process(lines, handle.pid)?,
        None => check_host(lines)?,
    }
    let (is_ready, verdict) = verdict(&found);
    writeln!(lines.out, "\n{}", clean(verdict))?;
    Ok(is_ready)
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
    if found.is_empty() {
        lines.note(
            "libcupti",
            "not in the usual folders; --activity also finds one that comes with the command, as with \
             PyTorch, or the one in GPUPROBE_CUPTI",
        )?;
        return Ok(false);
    }
    for path in &found {
        lines.ok("libcupti", path.display())?;
    }
    Ok(true)
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
        let name = &capability.to_string();
        if privileges::has(capability) {
            lines.ok(name, why)?;
        } else if privileges::BPF.contains(&capability) {
            lines.missing(name, format_args!("{why}; run as root (sudo)"))?;
        } else {
            lines.note(name, format_args!("missing; {why}"))?;
        }
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
                lines.ok(kind.name(), "entry and return were recorded")?;
            }
            Err(error) => {
                let why = format!("{error:#}");
                lines.note(
                    kind.name(),
                    why.trim_start_matches(kind.name()).trim_start(),
                )?;
            }
        }
    }
    match best {
        Some(kind) => lines.ok("attaching", format_args!("{kind} will be used"))?,
        None => lines.missing("attaching", "no kind is supported; see the lines above")?,
    }
    Ok(best.is_some())
}

fn check_host(lines: &mut DoctorLines) -> io::Result<()> {
    let mut seen = HashSet::new();
    let mut drivers = 0;
    for library in system::libraries() {
        drivers += usize::from(library.role == LibraryRole::Cuda(Layer::Driver));
        if seen.insert(library.id) {
            check_library(lines, &library)?;
        }
    }
    if drivers == 0 {
        let way_out = "not in the usual folders; libraries are found when programs load them";
        lines.note("libcuda", way_out)?;
    }
    for pid in process::all_pids() {
        for library in process::mapped(pid)
            .unwrap_or_default()
            .iter()
            .filter_map(|m| m.open().ok())
        {
            if seen.insert(library.id) {
                check_library(lines, &library)?;
            }
        }
    }
    Ok(())
}

fn check_process(lines: &mut DoctorLines, pid: u32) -> io::Result<()> {
    let mapped = match process::mapped(pid) {
        Ok(mapped) => mapped,
        Err(error) => {
            let way_out = format!("cannot be inspected ({error}); run as root (sudo)");
            return lines.missing("process", way_out);
        }
    };
    let is_cuda = |role| matches!(role, LibraryRole::Cuda(_));
    if !mapped.iter().any(|m| is_cuda(m.role)) {
        lines.note(
            "process",
            "no CUDA library is loaded yet; tracing waits for it",
        )?;
    }
    for file in &mapped {
        match file.open() {
            Ok(library) => check_library(lines, &library)?,
            Err(error) => lines.missing("library", format_args!("{error:#}"))?,
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
    let checked = found.and_then(|running| Ok((check::check(pid, &running, &spaces)?, running)));
    match checked {
        Ok((Checked::Threads(count), running)) => {
            let version = running.interpreter().layout.version;
            lines.ok(
                "Python",
                format_args!("{version}: stacks have its frames; {count} thread(s) checked"),
            )
        }
        Ok((Checked::NotBegun, running)) => {
            let version = running.interpreter().layout.version;
            lines.note("Python", format_args!("{version}, not initialised yet"))
        }
        Err(why) => lines.missing("Python", format_args!("no Python frames: {why}")),
    }
}

fn check_loader(lines: &mut DoctorLines, library: &MappedLibrary) -> io::Result<()> {
    let path = library.path.display();
    match library.rendezvous(&lines.reader) {
        Ok(Some(_)) => lines.ok("dynamic loader", format_args!("{path}: dlopen is noticed")),
        Ok(None) => lines.missing(
            "dynamic loader",
            format_args!("{path}: no _dl_debug_state; libraries loaded later are missed"),
        ),
        Err(error) => lines.missing("dynamic loader", format_args!("{error:#}")),
    }
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
        Err(error) => return lines.missing(name, format_args!("{error:#}")),
    };
    let found: Vec<_> = functions.iter().map(|f| f.symbol).collect();
    let absent: Vec<_> = (0u16..)
        .zip(FUNCTIONS)
        .filter(|(row, f)| f.layer == layer && *row != gpuprobe_cuda::table::SELF_TEST_ROW)
        .filter(|(row, _)| !functions.iter().any(|f| f.row == *row))
        .map(|(_, f)| f.symbol)
        .collect();
    if found.is_empty() {
        return lines.missing(name, format_args!("{path}: none of the traced functions"));
    }
    let (count, all) = (found.len(), found.len() + absent.len());
    let summary = format!("{path}: exports {count} of the {all} functions that are traced");
    if lines.verbose {
        lines.ok(name, format_args!("{summary}: {}", found.join(" ")))?;
    } else {
        lines.ok(name, summary)?;
    }
    note_instructions(lines, (name, library), &functions)?;
    if lines.verbose && !absent.is_empty() {
        lines.note(
            name,
            format_args!("{path}: not exported: {}", absent.join(" ")),
        )?;
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
        let affected: Vec<_> = functions
            .iter()
            .filter(|f| f.first == first)
            .map(|f| f.symbol)
            .collect();
        if !affected.is_empty() {
            lines.note(name, format_args!("{path}: {what} {}", affected.join(" ")))?;
        }
    }
    Ok(())
}
