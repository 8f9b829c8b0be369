//! The function table in `docs/functions.md`.

#![allow(clippy::unwrap_used)]

use std::fmt::Write;
use std::fs;

use gpuprobe_cuda::{CopyDirectionSource, Direction, FUNCTIONS, Function, HandleKind, Layer, Op};

/// A Markdown table of all traced functions, by operation and exporting library.
fn markdown() -> String {
    let mut groups: Vec<(String, [Vec<String>; 4])> = Vec::new();
    for function in FUNCTIONS.iter().filter(|f| f.op != Op::SelfTest) {
        let title = title(function);
        let column = usize::from(function.layer as u16);
        let name = name(function);
        match groups.iter_mut().find(|(t, _)| *t == title) {
            Some((_, columns)) if columns[column].contains(&name) => {}
            Some((_, columns)) => columns[column].push(name),
            None => {
                let mut columns = [const { Vec::new() }; 4];
                columns[column].push(name);
                groups.push((title, columns));
            }
        }
    }
    let mut table = String::from(
        "| operation | libcudart | libcuda | libc10, libtensorflow_framework, xla_cuda_plugin, librmm, CuPy, onnxruntime | libraries |\n|---|---|---|---|---|\n",
    );
    for (title, columns) in groups {
        let [runtime, driver, framework, library] = columns.map(|names| names.join(", "));
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            table,
            "| {title} | {runtime} | {driver} | {framework} | {library} |"
        );
    }
    table
}

/// The symbol with the suffixes of its variants.
fn name(function: &Function) -> String {
    match function.op {
        Op::Tensor if function.device.is_there() => {
            return "`c10::reportMemoryUsageToProfiler`".to_owned();
        }
        Op::Tensor if function.symbol.contains("AddTraceMe") => {
            return "`tsl::BFCAllocator::AddTraceMe`".to_owned();
        }
        Op::Tensor | Op::BlockRequest => return format!("`{}`", function.symbol),
        Op::OutOfMemory if function.device.is_there() => {
            return "`c10::reportOutOfMemoryToProfiler`".to_owned();
        }
        Op::OutOfMemory => return "`tsl::BFCAllocator::DumpMemoryLog`".to_owned(),
        _ => {}
    }
    let stem = function.symbol;
    let base = stem.rsplit_once("_v").map_or(stem, |(base, _)| base);
    let variants: Vec<_> = function
        .variants
        .iter()
        .map(|variant| match variant.strip_prefix(stem) {
            Some(ending) => format!("`{ending}`"),
            None => match variant.strip_prefix(base) {
                Some("") => "unversioned".to_owned(),
                _ => format!("`{variant}`"),
            },
        })
        .collect();
    if variants.is_empty() {
        format!("`{stem}`")
    } else {
        format!("`{stem}` ({})", variants.join(", "))
    }
}

fn title(function: &Function) -> String {
    let kind = function.kind;
    match function.op {
        Op::Allocate => format!("{kind}: allocate"),
        Op::Free => format!("{kind}: free"),
        Op::HandleCreate | Op::HandleRetain => format!("{kind}: create, retain"),
        Op::HandleRelease => format!("{kind}: release"),
        Op::Map | Op::Unmap | Op::MapHandle => format!("{kind}: map, unmap"),
        Op::HandleImport | Op::ShareOpen | Op::ShareExport | Op::HandleOther => {
            "imported: import, open, export".into()
        }
        Op::ShareClose => "imported: close".into(),
        Op::Reserve | Op::Unreserve => "address space".into(),
        Op::Symbol => "static: variables".into(),
        Op::ModuleLoad | Op::LibraryLoad | Op::ModuleUnload => "modules".into(),
        Op::ObjectCreate | Op::ObjectDestroy if function.layer == Layer::Library => {
            "handles of libraries".into()
        }
        Op::ObjectDestroy if function.handle == Some(HandleKind::GreenContext) => {
            "ends of contexts".into()
        }
        Op::ObjectCreate | Op::ObjectDestroy | Op::StreamDestroy => {
            "streams, events, endpoints".into()
        }
        Op::PoolCreate
        | Op::PoolDestroy
        | Op::PoolTrim
        | Op::PoolAttribute
        | Op::PoolLimit
        | Op::PoolOfDevice
        | Op::PoolSet => "pools".into(),
        Op::GraphAllocate | Op::GraphFree | Op::GraphNode | Op::GraphBuild | Op::GraphDestroy => {
            "graph: memory nodes".into()
        }
        Op::ContextDestroy | Op::DeviceReset | Op::PrimaryRelease => "ends of contexts".into(),
        Op::ContextCreate
        | Op::ContextRetain
        | Op::ContextPart
        | Op::ContextSet
        | Op::ContextPush
        | Op::ContextPop
        | Op::ContextGet
        | Op::ContextDevice
        | Op::DeviceSet
        | Op::DeviceGet
        | Op::DeviceCount => "contexts and devices".into(),
        Op::Launch => "launches".into(),
        Op::GraphLaunch => "graph launches".into(),
        Op::CaptureBegin | Op::CaptureEnd => "captures".into(),
        Op::EventRecord | Op::StreamWait => "captures: joining".into(),
        Op::KernelName => "names of kernels".into(),
        Op::Copy | Op::CopyBatch
            if function.direction == CopyDirectionSource::Always(Direction::Set) =>
        {
            "memory sets".into()
        }
        Op::Copy | Op::CopyBatch if function.symbol.contains("Prefetch") => "prefetches".into(),
        Op::Copy | Op::CopyBatch => "copies".into(),
        Op::Tensor | Op::BlockRequest => "tensors".into(),
        Op::OutOfMemory => "out of memory, after retries".into(),
        Op::SelfTest => "self-test".into(),
        Op::Checkpoint | Op::Restore => "checkpoints of processes".into(),
    }
}

#[test]
fn the_chapter_of_functions_has_this_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/functions.md");
    let (begin, end) = ("<!-- functions -->\n", "<!-- end of functions -->");
    let chapter = fs::read_to_string(path).unwrap();
    let (before, rest) = chapter.split_once(begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    let expected = [before, begin, &markdown(), end, after].concat();
    if std::env::var_os("GPUPROBE_WRITE_GOLDEN").is_some() {
        fs::write(path, &expected).unwrap();
    }
    assert_eq!(chapter, expected, "`just golden` writes it");
}
