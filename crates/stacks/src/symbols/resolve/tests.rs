use super::*;
use gpuprobe_model::stack::Location;

#[test]
fn python_symbols_are_split_into_function_and_file() {
    let named = |name: &str| {
        let frame = jit_frame(name, 0x10);
        (frame.function, frame.file, frame.language)
    };
    for (name, function, file) in [
        ("py::step:/home/ada/train.py", "step", "/home/ada/train.py"),
        (
            "py::A.f.<locals>.<lambda>:/a:b.py",
            "A.f.<locals>.<lambda>",
            "/a:b.py",
        ),
        ("py::<module>:<string>", "<module>", "<string>"),
    ] {
        let expected = (function.to_owned(), Some(file.to_owned()), Language::Python);
        assert_eq!(named(name), expected);
    }
    for name in ["py::cut", "LazyCompile:~f /a.js:1", "pypy"] {
        assert_eq!(named(name), (name.to_owned(), None, Language::Native));
    }
}

use crate::elf::sample::{ElfSample, FUNCTION};

const PID: u32 = u32::MAX - 30;

fn symbolizer() -> Symbolizer {
    Symbolizer::new(FileReader::default(), ProcessReader::default())
}

fn module(reader: &FileReader) -> Arc<Module> {
    let sample = ElfSample::default()
        .code(0x1000, &[0xc3; 64])
        .symbols(false, &[("f", 0x1000, 16, FUNCTION)]);
    let module = Module::of_file("/x/libx.so".into(), sample.file(), reader);
    Arc::new(module)
}

#[test]
fn places_are_named_once_their_module_is_open() -> Result<(), &'static str> {
    let mut symbolizer = symbolizer();
    let module = module(&symbolizer.reader);
    let id = module.id;
    let segments = module.headers().map_err(|_| "no headers")?.segments.clone();
    let (begin, _) = segments.offset_of(0x1000).ok_or("no code")?;
    let name = |symbolizer: &mut Symbolizer, at: u64, is_innermost, module: Option<&Arc<_>>| {
        let location = Location {
            address: at,
            module: Some(id),
            offset: begin + at,
        };
        let request = SymbolRequest {
            pid: PID,
            location,
            is_innermost,
        };
        let answer = symbolizer.answer(request, module);
        assert_eq!((answer.request, answer.frames.len()), (request, 1));
        answer.frames[0].function.clone()
    };
    assert_eq!(name(&mut symbolizer, 0x20, true, None), "0x20");
    // A caller's is the byte before; the address is that of the return.
    for (at, is_innermost, expected) in [
        (0x20, true, "libx.so+0x1020"),
        (0x21, false, "libx.so+0x1021"),
        (0x8, true, "f"),
        (0x10, true, "libx.so+0x1010"),
        (0x10, false, "f"),
    ] {
        let named = name(&mut symbolizer, at, is_innermost, Some(&module));
        assert_eq!(named, expected);
        assert_eq!(name(&mut symbolizer, at, is_innermost, None), expected);
    }
    symbolizer.close(module.id);
    assert_eq!(name(&mut symbolizer, 0x27, true, None), "0x27");
    Ok(())
}

#[test]
fn a_map_is_looked_for_seldom() {
    let mut symbolizer = symbolizer();
    let later = Instant::now() + Duration::from_secs(3600);
    symbolizer.looked_for = Some((PID, later));
    assert!(symbolizer.jit_symbol(PID, 0x1000).is_none());
    assert_eq!(symbolizer.looked_for, Some((PID, later)));
    let past = Instant::now().checked_sub(2 * PAUSE).unwrap_or(later);
    for (pid, at) in [(PID, past), (PID - 1, later)] {
        symbolizer.looked_for = Some((pid, at));
        assert!(symbolizer.jit_symbol(PID, 0x1000).is_none());
        assert_ne!(symbolizer.looked_for, Some((pid, at)));
    }
    symbolizer.forget(PID);
    assert!(symbolizer.looked_for.is_none());
}

#[test]
fn a_map_that_is_there_is_replaced_by_another_file_only() -> std::io::Result<()> {
    use std::io::Write;
    let mut symbolizer = symbolizer();
    let mut files = [tempfile::tempfile()?, tempfile::tempfile()?];
    for (file, name) in files.iter_mut().zip(["first", "second"]) {
        file.write_all(format!("1000 10 {name}\n").as_bytes())?;
    }
    let keep = |symbolizer: &mut Symbolizer, file: &File| {
        symbolizer.keep_perf_map(PID, file.try_clone().ok());
    };
    keep(&mut symbolizer, &files[0]);
    symbolizer.keep_perf_map(PID, None);
    assert_eq!(symbolizer.jit_symbol(PID, 0x1000).as_deref(), Some("first"));
    keep(&mut symbolizer, &files[1]);
    let second = Some("second");
    assert_eq!(symbolizer.jit_symbol(PID, 0x1000).as_deref(), second);
    keep(&mut symbolizer, &files[0]);
    // Only what is written behind it is read.
    files[0].write_all(b"1000 10 third\n")?;
    assert_eq!(symbolizer.jit_symbol(PID, 0x1000).as_deref(), Some("first"));
    let location = Location {
        address: 0x1010,
        module: None,
        offset: 0,
    };
    let request = SymbolRequest {
        pid: PID,
        location,
        is_innermost: false,
    };
    let frame = &symbolizer.answer(request, None).frames[0];
    assert_eq!((frame.function.as_str(), frame.address), ("first", 0x1010));
    symbolizer.forget(PID);
    assert!(symbolizer.jit_symbol(PID, 0x1000).is_none());
    keep(&mut symbolizer, &files[0]);
    assert_eq!(symbolizer.jit_symbol(PID, 0x1000).as_deref(), Some("third"));
    Ok(())
}
