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
