//! Physical memory, its handles and mappings.

use super::{PID, Program, detail, values};

impl Program {
    fn create(&mut self, handle: u64, bytes: u64) {
        self.call("cuMemCreate", handle, |call| call.size_bytes = bytes);
    }

    fn map(&mut self, address: u64, bytes: u64, handle: u64, offset: u64) {
        self.call("cuMemMap", address, |call| {
            call.size_bytes = bytes;
            values(call, &[handle, offset]);
        });
    }

    fn unmap(&mut self, address: u64, bytes: u64) {
        self.call("cuMemUnmap", address, |call| call.size_bytes = bytes);
    }

    fn release(&mut self, handle: u64) {
        self.call("cuMemRelease", handle, |_| {});
    }

    fn import(&mut self, handle: u64) {
        self.call("cuMemImportFromShareableHandle", handle, |call| {
            call.size_bytes = 0;
        });
    }
}

#[test]
fn memory_is_held_by_references_and_mappings() {
    let mut program = Program::new();
    program.create(0x50, 100);
    program.map(0x1000, 100, 0x50, 0);
    program.call("cuMemRetainAllocationHandle", 0x1000, |call| {
        detail(call).out = 0x50;
    });
    program.release(0x50);
    program.release(0x50);
    assert_eq!((program.gpu_bytes(), program.counts()), (100, (1, 2, 0)));
    program.unmap(0x1000, 100);
    assert_eq!(program.gpu_bytes(), 0);
    program.release(0x50);
    assert_eq!(program.counts(), (1, 3, 1));
}

#[test]
fn memory_of_the_host_is_counted_as_such() {
    let mut program = Program::new();
    for (handle, location, bytes) in [(0x50, 0, 1), (0x60, 1, 20), (0x70, 2, 300)] {
        program.call("cuMemCreate", handle, |call| {
            call.size_bytes = bytes;
            values(call, &[location]);
        });
    }
    assert_eq!(program.bytes(), [21, 300, 0]);
}

#[test]
fn a_handle_of_something_else_takes_the_place_of_a_handle_of_memory() {
    let mut program = Program::new();
    program.create(0x50, 100);
    program.call("cuMulticastCreate", 0x50, |_| {});
    assert_eq!(program.gpu_bytes(), 0);
    program.release(0x50);
    assert_eq!(program.counts(), (1, 1, 0));
}

#[test]
fn the_size_of_imported_memory_is_known_once_it_is_mapped() {
    let mut program = Program::recorded();
    program.import(0x60);
    assert_eq!(program.bytes(), [0, 0, 0]);
    program.map(0x1000, 64, 0x60, 32);
    assert_eq!(program.bytes(), [0, 0, 96]);
    let thread = program.process().threads().next().unwrap();
    assert_eq!((thread.tid, thread.live.imported.bytes), (PID, 96));
    let site = program.process().sites.iter().next().unwrap();
    let sums = [site.live, site.allocated, site.freed].map(|sums| sums.imported.bytes);
    assert_eq!((sums, site.peak_bytes), ([96, 96, 0], 96));
    // As much, or less, tells nothing new.
    program.changes();
    program.map(0x2000, 64, 0x60, 32);
    program.map(0x3000, 8, 0x60, 0);
    assert!(program.changes().is_empty());
    // Of memory that the program has created, the size is known.
    program.create(0x70, 8);
    program.map(0x4000, 100, 0x70, 0);
    assert_eq!(program.bytes(), [8, 0, 96]);
}

#[test]
fn each_of_many_imported_handles_has_its_size() {
    let mut program = Program::new();
    for n in 1..=300 {
        program.import(0x10_0000 + n);
    }
    for n in 1..=300 {
        program.map(n << 20, n, 0x10_0000 + n, 0);
    }
    let expected: Vec<_> = (1..=300).map(|n| (n, n)).collect();
    assert_eq!(program.live(), expected);
    let totals = program.process().totals.sums.imported;
    assert_eq!((totals.bytes, totals.allocations), (300 * 301 / 2, 300));
}

#[test]
fn external_memory_is_mapped_by_its_handle_and_freed_like_other_memory() {
    let mut program = Program::new();
    program.call("cuImportExternalMemory", 0x60, |call| call.size_bytes = 500);
    program.call("cuExternalMemoryGetMappedBuffer", 0x60, |call| {
        (call.size_bytes, detail(call).out) = (200, 0x1000);
    });
    program.call("cuDestroyExternalMemory", 0x60, |_| {});
    assert_eq!(program.bytes(), [0, 0, 500]);
    program.call("cuMemFree_v2", 0x1000, |_| {});
    assert_eq!(program.bytes(), [0, 0, 0]);
    assert_eq!(program.counts().2, 0);
}

#[test]
fn address_space_is_reserved_and_released() {
    let mut program = Program::new();
    for (address, size_bytes) in [(0x1000, 100), (0x8000, 20)] {
        program.call("cuMemAddressReserve", address, |call| {
            call.size_bytes = size_bytes;
        });
    }
    assert_eq!(program.process().physical.reserved_bytes, 120);
    program.call("cuMemAddressFree", 0x1000, |_| {});
    assert_eq!(program.process().physical.reserved_bytes, 20);
    assert_eq!(program.gpu_bytes(), 0);
}
