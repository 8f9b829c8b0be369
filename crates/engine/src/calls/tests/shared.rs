//! Memory that processes share.

use gpuprobe_cuda::EXTRA;
use gpuprobe_model::event::Event;

use super::{PID, Program, detail, values};
use crate::calls::{MAX_PID, MAX_SIZE, size_in_name};
use crate::{Identity, call};

const OTHER: u32 = 8;

impl Program {
    /// Process 8 exports memory of `bytes` at `address` under a name.
    fn export(&mut self, address: u64, bytes: u64, name: u64) {
        for (symbol, size_bytes) in [("cudaMalloc", bytes), ("cuIpcGetMemHandle", 0)] {
            self.now_ns += 10;
            let mut event = call(OTHER, symbol, address, self.now_ns);
            if let Event::Call(call) = &mut event {
                call.size_bytes = size_bytes;
                values(call, &[name]);
            }
            self.ledger.apply(&event, |_| Identity::default());
        }
    }

    fn open(&mut self, symbol: &str, address: u64, name: &[u64]) {
        self.call(symbol, address, |call| {
            call.size_bytes = 0;
            values(call, name);
        });
    }

    /// Process id, command, bytes and number of what is imported, by exporter.
    fn imported(&self) -> Vec<(u32, Option<String>, u64, u64)> {
        let all = self.process().imported_from().into_iter();
        let one = all.map(|(of, sum)| (of.pid, of.command.clone(), sum.bytes, sum.allocations));
        one.collect()
    }
}

#[test]
fn memory_is_open_until_it_is_closed_as_often_as_it_was_opened() {
    let mut program = Program::new();
    let name = [9, 1 << 40 | 1234, 4096];
    for _ in 0..2 {
        program.open("cudaIpcOpenMemHandle", 0xa000, &name);
    }
    assert_eq!(program.bytes(), [0, 0, 4096]);
    let before = program.process().kept();
    program.call("cudaIpcCloseMemHandle", 0xa000, |_| {});
    assert_eq!(program.bytes(), [0, 0, 4096]);
    program.call("cudaIpcCloseMemHandle", 0xa000, |_| {});
    assert_eq!((program.bytes(), program.counts()), ([0, 0, 0], (2, 2, 0)));
    let after = program.process().kept();
    assert_eq!(before - after, 1 + 1);
    program.call("cudaIpcCloseMemHandle", 0xa000, |_| {});
    assert_eq!(program.counts(), (2, 3, 1));
    // With its device it is closed, too, however often it was opened.
    for _ in 0..2 {
        program.open("cudaIpcOpenMemHandle", 0xa000, &name);
    }
    program.call("cudaDeviceReset", 0, |_| {});
    assert_eq!(program.bytes(), [0, 0, 0]);
    program.open("cudaIpcOpenMemHandle", 0xa000, &name);
    assert_eq!(program.bytes(), [0, 0, 4096]);
}

#[test]
fn a_plausible_size_is_taken_from_the_name() {
    let size = |pid: u64, size: u64| {
        let mut name = [0; EXTRA];
        (name[1], name[2]) = (pid, size);
        size_in_name(&name)
    };
    assert_eq!(size(1, 1), Some(1));
    assert_eq!(size(0xabcd << 32 | MAX_PID, MAX_SIZE), Some(MAX_SIZE));
    for (pid, bytes) in [
        (0, 4096),
        (1 << 32, 4096),
        (MAX_PID + 1, 4096),
        (1, 0),
        (1, MAX_SIZE + 1),
    ] {
        assert_eq!(size(pid, bytes), None, "{pid} {bytes}");
    }
}

#[test]
fn imported_memory_is_its_exporters() {
    let mut program = Program::new();
    program.begin(OTHER);
    program.export(0x1000, 100, 1);
    program.export(0x2000, 2000, 2);
    // Memory that is not known is not exported.
    program.call("cuIpcGetMemHandle", 0x7777, |call| values(call, &[3]));
    // The size in the name is not used if the memory is known.
    program.open("cuIpcOpenMemHandle_v2", 0xa000, &[1, 0, 0]);
    program.open("cuMemPoolImportPointer", 0xb000, &[2]);
    let command = Some("program 8".to_owned());
    assert_eq!(program.imported(), [(OTHER, command.clone(), 2100, 2)]);
    assert_eq!(program.live(), [(0xa000, 100), (0xb000, 2000)]);
    let before = program.process().kept();
    program.call("cuMemFree_v2", 0xb000, |_| {});
    assert_eq!(program.imported(), [(OTHER, command, 100, 1)]);
    assert_eq!(program.process().kept(), before - 1 - 1);
    // Other memory at the same address is nobody's that is known.
    program.call("cuIpcCloseMemHandle", 0xa000, |_| {});
    program.open("cuIpcOpenMemHandle_v2", 0xa000, &[3]);
    assert_eq!(
        (program.imported(), program.live()),
        (vec![], vec![(0xa000, 0)])
    );
}

#[test]
fn memory_is_sized_by_what_was_exported_of_the_process_itself() {
    let mut program = Program::new();
    program.call("cudaMalloc", 0x1000, |call| call.size_bytes = 100);
    program.call("cudaMalloc", 0x2000, |call| call.size_bytes = 300);
    program.call("cuMemPoolExportPointer", 0x2000, |call| {
        detail(call).values[0] = 5;
    });
    program.open("cuMemPoolImportPointer", 0xb000, &[5]);
    assert_eq!(program.at(0xb000).size_bytes, 300);
    assert_eq!(program.imported()[0].0, PID);
}
