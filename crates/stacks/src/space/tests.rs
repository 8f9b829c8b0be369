use super::*;

#[test]
fn executable_pages_contain_functions_but_no_heap() -> Result<(), &'static str> {
    let mut spaces = AddressSpaces::default();
    let pid = std::process::id();
    assert!(spaces.code(pid).is_none(), "no snapshot yet");
    spaces.refresh(pid);
    let code = spaces.code(pid).ok_or("no snapshot of this process")?;
    let has = |address: u64| {
        let part = (address >> CODE_SHIFT) as usize % (64 * CODE_WORDS);
        code.bits[part / 64] >> (part % 64) & 1 == 1
    };
    let functions = [
        executable_pages_contain_functions_but_no_heap as *const (),
        libc_function(),
    ];
    for function in functions {
        assert!(has(function.addr() as u64));
    }
    let heap = vec![0u8; 64 << 20];
    let middle = heap.as_ptr().addr() as u64 + (32 << 20);
    assert!(!has(middle));
    // Pages of 4 KiB, of at least this program and the C library.
    assert!(
        (100..1 << 20).contains(&code.exec_pages),
        "{}",
        code.exec_pages
    );
    let bits: u32 = code.bits.iter().map(|word| word.count_ones()).sum();
    assert!((3..10_000).contains(&bits), "{bits}");
    Ok(())
}

fn libc_function() -> *const () {
    nix::libc::getpid as *const ()
}

const HOUR: Duration = Duration::from_secs(3600);

fn range(start: u64, end: u64) -> CodeRange {
    CodeRange {
        start,
        end,
        offset: 0x100,
        is_writable: false,
        module: None,
        trampoline: None,
    }
}

#[test]
fn mappings_are_read_again_a_few_times_and_once_for_a_page() {
    let mut space = CodeSpace {
        missed_since: Some(Instant::now() + HOUR),
        ..CodeSpace::default()
    };
    assert!(space.may_read(0x1000));
    assert!(!space.may_read(0x1fff), "the same page");
    for page in 2..=MAX_READS as u64 {
        assert!(space.may_read(page * PAGE), "{page}");
    }
    assert!(!space.may_read(0x100 * PAGE), "too many");
    assert_eq!(space.missed.len(), MAX_READS);
    space.missed_since = Instant::now().checked_sub(2 * PAUSE);
    assert!(space.may_read(0x1000));
    assert_eq!(space.missed.len(), 1);
}

#[test]
fn an_address_is_in_the_mapping_around_it() {
    let space = CodeSpace {
        ranges: vec![range(0x1000, 0x2000), range(0x3000, 0x4000)],
        ..CodeSpace::default()
    };
    for (address, start) in [
        (0xfff, None),
        (0x1000, Some(0x1000)),
        (0x1fff, Some(0x1000)),
        (0x2000, None),
        (0x3000, Some(0x3000)),
        (0x4000, None),
    ] {
        let found = space.range(address).map(|range| range.start);
        assert_eq!(found, start, "{address:#x}");
    }
    // The call before a return address may be the last instruction.
    assert_eq!(space.find(0x2000, 0x1fff), Some(nowhere(0x2000)));
    assert!(space.find(0x2000, 0x2000).is_none());
}

#[test]
fn pages_are_bits_modulo_their_number() {
    let code = |ranges: Vec<CodeRange>, exec_pages| {
        let mut spaces = AddressSpaces::default();
        let space = CodeSpace {
            ranges,
            exec_pages,
            ..CodeSpace::default()
        };
        spaces.processes.insert(1, space);
        spaces.code(1)
    };
    let part = 1 << CODE_SHIFT;
    let beyond = 64 * CODE_WORDS as u64 + 70;
    let ranges = || {
        vec![
            range(3 * part, 5 * part),
            range(127 * part + 5, 128 * part + 1),
            range(beyond * part, beyond * part + 1),
        ]
    };
    let found = code(ranges(), Some(5)).unwrap();
    assert_eq!(found.exec_pages, 5);
    assert_eq!(found.bits[..3], [0b11 << 3, 1 << 63 | 1 << 6, 1]);
    assert!(found.bits[3..].iter().all(|word| *word == 0));
    let all = code(vec![range(0, u64::MAX)], Some(5)).unwrap();
    assert!(all.bits.iter().all(|word| *word == u64::MAX));
    assert!(code(ranges(), None).is_none());
    let mut writable = ranges();
    writable[1].is_writable = true;
    assert!(code(writable, Some(5)).is_none());
}

#[test]
#[allow(unsafe_code)]
fn mappings_of_a_process_are_its_files_and_anonymous_code() {
    let code = memmap2::MmapOptions::new().len(4096).map_anon().unwrap();
    let code = code.make_exec().unwrap();
    let mut spaces = AddressSpaces::default();
    let pid = std::process::id();
    spaces.refresh(pid);
    spaces.refresh(pid);
    assert_eq!(spaces.pids().collect::<Vec<_>>(), [pid]);
    let space = &spaces.processes[&pid];
    let at = |address: u64| space.range(address).unwrap().module.is_none();
    let here = mappings_of_a_process_are_its_files_and_anonymous_code as *const () as u64;
    assert!(at(code.as_ptr() as u64) && !at(here));
    let location = spaces.locate(pid, here);
    let (module, _) = spaces.images(pid).next().unwrap();
    assert_eq!(Some(module.id), location.module);
    let caller = spaces.modules.get(module.id).unwrap();
    assert_eq!(caller.id, module.id);
    let (own, offset) = spaces.code_at(pid, here).unwrap();
    assert_eq!((own.id, offset), (module.id, location.offset));
    let call = spaces.locate_caller(pid, here + 1);
    assert_eq!(call.offset, location.offset + 1);
    let segments = &own.headers().unwrap().segments;
    assert_eq!(spaces.file_address(&call), segments.address_of(offset));
    assert_eq!(spaces.locate(pid, 1), nowhere(1));
    assert_eq!(spaces.locate_caller(pid, 2), nowhere(2));
    spaces.forget(pid);
    assert_eq!(spaces.pids().count(), 0);
    let closed: Vec<_> = (0..3).flat_map(|_| spaces.close_unused()).collect();
    assert!(location.module.is_some_and(|id| closed.contains(&id)));
}

#[test]
fn rules_are_kept_by_function_and_number_limited() {
    use crate::elf::sample::ElfSample;
    let sample = ElfSample::default()
        .code(0x1000, &[0xc3; 64])
        .eh_frame(&[(0x1000, 0x10), (0x1020, 0x10)]);
    let file = crate::untrusted::file_of(&sample.bytes()).unwrap();
    let reader = FileReader::default();
    let module = Module::of_file("/x".into(), file, &reader);
    let mut rules = Rules::default();
    let at = |rules: &mut Rules, address| rules.at(&reader, &module, address).is_some();
    for (address, is_found, count) in [
        (0x1005, true, 1),
        (0x100f, true, 1),
        (0x1010, false, 2),
        (0x1010, false, 2),
        (0x1011, false, 3),
        (0x1020, true, 4),
    ] {
        assert_eq!(at(&mut rules, address), is_found, "{address:#x}");
        assert_eq!(rules.0.len(), count, "{address:#x}");
    }
    for n in rules.0.len()..RULES_LIMIT - 2 {
        rules.0.insert((ModuleId(0), n as u64), (0, None));
    }
    assert!(at(&mut rules, 0x1005), "known");
    assert!(at(&mut rules, 0x1020) && !at(&mut rules, 0x1012));
    assert_eq!(rules.0.len(), RULES_LIMIT - 1);
    assert!(!at(&mut rules, 0x1013) && !at(&mut rules, 0x1014));
    assert_eq!(rules.0.len(), 1, "the others are gone");
}

/// This program is linked by rustc's lld, so that its code begins within a page.
#[test]
fn load_biases_are_those_of_the_code() -> Result<(), &'static str> {
    let mut spaces = AddressSpaces::default();
    let pid = std::process::id();
    spaces.refresh(pid);
    let here = load_biases_are_those_of_the_code as *const () as u64;
    let after = spaces.locate_caller(pid, here + 1);
    let stated = spaces.file_address(&after).ok_or("no file")?;
    let (_, bias) = spaces.images(pid).next().ok_or("no image")?;
    assert_eq!(here.wrapping_sub(bias), stated);
    Ok(())
}
