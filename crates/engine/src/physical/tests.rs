use super::*;

#[test]
fn a_handle_is_reused_while_the_old_memory_is_mapped() {
    let mut memory = PhysicalMemory::default();
    let (old, _) = memory.create(0x50, 10);
    memory.map(0x1000, 64, 0x50, 11);
    assert_eq!(memory.release(0x50, 12), Released::Held);
    let (new, superseded) = memory.create(0x50, 13);
    assert_eq!(superseded, Released::Held);
    assert_eq!(memory.unmap(0x1000, 64, 14), [Released::Gone(old)]);
    assert_eq!(memory.release(0x50, 15), Released::Gone(new));
}

#[test]
fn unknown_handles_are_ignored() {
    let mut memory = PhysicalMemory::default();
    memory.retain(0x9000, 0x60, 10);
    assert_eq!(memory.release(0x60, 11), Released::Held);
    assert_eq!(memory.release(0x60, 12), Released::Unknown);
    memory.enter(0x70, None, 13);
    memory.map(0x1000, 64, 0x70, 14);
    assert_eq!(memory.release(0x70, 15), Released::Held);
    assert_eq!(memory.unmap(0x1000, 64, 16), [Released::Held]);
}

#[test]
fn a_reused_handle_drops_all_references() {
    let mut memory = PhysicalMemory::default();
    memory.create(0x50, 10);
    memory.map(0x1000, 64, 0x50, 11);
    for _ in 0..100_000 {
        memory.retain(0x1000, 0x50, 12);
    }
    memory.create(0x50, 30);
    for _ in 0..100_001 {
        assert_eq!(memory.release(0x50, 20), Released::Held);
    }
    assert_eq!(memory.release(0x50, 20), Released::Unknown);
}

#[test]
fn unmapping_a_hundred_thousand_mappings_is_fast() {
    let mut memory = PhysicalMemory::default();
    let (id, _) = memory.create(0x50, 10);
    let addresses = || (0..100_000).map(|n| 0x10_0000 + n * 64);
    for address in addresses() {
        memory.map(address, 64, 0x50, 11);
    }
    for address in addresses().take(99_999) {
        memory.unmap(address, 64, 12);
        assert!(memory.get(id).unwrap().address > Some(address));
    }
}

#[test]
fn a_free_belongs_to_what_there_was_when_it_was_entered() {
    let mut memory = PhysicalMemory::default();
    let (id, _) = memory.create(0x50, 10);
    // Entered when the call that created it returned.
    assert_eq!(memory.release(0x50, 10), Released::Gone(id));
    memory.create(0x60, 20);
    memory.map(0x1000, 64, 0x60, 30);
    assert_eq!(memory.unmap(0x1000, 64, 29), []);
    assert_eq!(memory.unmap(0x1000, 64, 30), [Released::Held]);
    memory.reserve(0x1000, 100, 30);
    memory.unreserve(0x1000, 29);
    assert_eq!(memory.reserved_bytes, 100);
    memory.unreserve(0x1000, 30);
    assert_eq!(memory.reserved_bytes, 0);
    memory.reserve(0x1000, 100, 40);
    memory.reserve(0x1000, 70, 50);
    assert_eq!(memory.reserved_bytes, 70);
}

#[test]
fn addresses_are_found_in_mappings_and_ranges() {
    let mut memory = PhysicalMemory::default();
    let (first, _) = memory.create(0x50, 10);
    let (second, _) = memory.create(0x60, 10);
    memory.reserve(0x1000, 0x100, 10);
    memory.reserve(0x8000, 0x10, 10);
    memory.map(0x1000, 64, 0x50, 11);
    memory.map(0x1080, 64, 0x60, 11);
    memory.map(0x1100, 64, 0x60, 11);
    let ranges = [0xfff, 0x1000, 0x10ff, 0x1100, 0x8000].map(|at| memory.range_of(at));
    assert_eq!(
        ranges,
        [None, Some(0x1000), Some(0x1000), None, Some(0x8000)]
    );
    assert_eq!(memory.mapped_in(0x1000), [(0x1000, 64), (0x1080, 64)]);
    assert_eq!(memory.mapped_in(0x1001), []);
    assert_eq!(memory.mapping_at(0x1080), Some((64, Some(second))));
    assert_eq!(memory.mapping_at(0x1081), None);
    let bytes = [(0x1000, 0), (0x1000, 0x80), (0x1000, 0x81)];
    assert_eq!(
        bytes.map(|(at, size)| memory.mapped_bytes_at(at, size)),
        [64, 64, 128]
    );
    // References are obtained through any address in a mapping.
    for (handle, address, references) in [
        (0x71, 0x103f, 2),
        (0x72, 0x1040, 2),
        (0x73, 0x10c0, 2),
        (0x74, 0x1000, 3),
    ] {
        memory.retain(address, handle, 20);
        assert_eq!(
            memory.get(first).unwrap().references,
            references,
            "{address:x}"
        );
    }
    assert_eq!(memory.get(first).unwrap().handle, 0x74);
}
