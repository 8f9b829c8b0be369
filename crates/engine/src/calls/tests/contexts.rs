//! Modules and contexts, with which memory ends.

use super::{PID, Program, detail};
use crate::Identity;
use gpuprobe_cuda::HandleKind;
use gpuprobe_model::event::{CONTEXT_UNKNOWN, Event, Task};

impl Program {
    fn variable(&mut self, module: u64, address: u64, bytes: u64, name: &str) {
        self.call("cuModuleGetGlobal_v2", module, |call| {
            call.size_bytes = bytes;
            detail(call).out = address;
            detail(call).name = Some(name.to_owned());
        });
    }

    fn allocate_in(&mut self, address: u64, device: Option<u16>, context: u16) {
        self.call("cuMemAlloc_v2", address, |call| {
            (call.device, call.context) = (device, context);
        });
    }

    fn addresses(&self) -> Vec<u64> {
        self.live().iter().map(|(address, _)| *address).collect()
    }
}

#[test]
fn variables_live_as_long_as_their_module() {
    let mut program = Program::new();
    program.call("cuModuleLoad", 0x70, |_| {});
    program.call("cuLibraryLoadData", 0x80, |_| {});
    assert_eq!(program.process().modules(), 2);
    program.variable(0x70, 0x1000, 64, "first");
    program.variable(0x70, 0, 64, "none");
    // Queried again: with its size, without it, and larger.
    program.variable(0x70, 0x1000, 64, "again");
    program.variable(0x70, 0x1000, 0, "again");
    assert_eq!(program.live(), [(0x1000, 64)]);
    let name = |program: &Program| {
        program
            .process()
            .name_of(program.at(0x1000))
            .map(str::to_owned)
    };
    assert_eq!(name(&program).as_deref(), Some("first"));
    program.variable(0x80, 0x1000, 65, "larger");
    program.variable(0x70, 0x2000, 5, "other");
    assert_eq!(name(&program).as_deref(), Some("larger"));
    // It belongs to the other module now.
    program.call("cuModuleUnload", 0x70, |_| {});
    assert_eq!(program.live(), [(0x1000, 65)]);
    assert_eq!(program.process().modules(), 1);
    program.call("cuLibraryUnload", 0x80, |_| {});
    assert!(program.process().held() == 0);
    let process = program.process();
    assert!(process.variables.is_empty() && process.of_modules.is_empty());
    assert_eq!(process.modules(), 0);
}

#[test]
fn a_context_ends_with_the_memory_and_modules_in_it() {
    let mut program = Program::new();
    for context in [3, 4] {
        program.call("cuCtxCreate_v2", 0xc0, |call| call.context = context);
    }
    assert_eq!(program.process().handles.live(HandleKind::Context), 2);
    program.allocate_in(0x1000, Some(0), 3);
    program.allocate_in(0x2000, Some(0), 4);
    program.allocate_in(0x3000, Some(0), 0);
    program.call("cuMemAllocAsync", 0x4000, |call| call.context = 3);
    program.call("cuMemCreate", 0x50, |call| call.context = 3);
    program.call("cuImportExternalMemory", 0x60, |call| call.context = 3);
    for (module, context) in [(0x70, 3), (0x80, 4)] {
        program.call("cuModuleLoad", module, |call| call.context = context);
        program.variable(module, module << 8, 16, "variable");
    }
    program.call("cuLibraryLoadData", 0x90, |_| {});
    program.call("cuCtxDestroy_v2", 0xc0, |call| call.context = 3);
    // Physical memory, numbered 1 and 2, and pools belong to no context.
    assert_eq!(program.addresses(), [1, 2, 0x2000, 0x3000, 0x4000, 0x8000]);
    let loaded = |key| program.process().handles.get(key).is_some();
    let modules = [0x70, 0x80].map(|module| loaded((HandleKind::Module, module)));
    assert_eq!(modules, [false, true]);
    assert!(loaded((HandleKind::Library, 0x90)));
    assert_eq!(program.process().handles.live(HandleKind::Context), 1);
    // Its number is used again.
    program.allocate_in(0x5000, Some(0), 3);
    program.call("cuCtxDestroy_v2", 0xc0, |call| call.context = 4);
    assert_eq!(program.addresses(), [1, 2, 0x3000, 0x4000, 0x5000]);
}

#[test]
fn a_reset_ends_the_primary_context_of_its_device() {
    let mut program = Program::new();
    let fill = |program: &mut Program| {
        program.allocate_in(0x1000, Some(0), 0);
        program.allocate_in(0x2000, Some(1), 0);
        program.allocate_in(0x3000, Some(0), 3);
        program.allocate_in(0x4000, Some(0), CONTEXT_UNKNOWN);
        program.allocate_in(0x5000, None, 0);
        for (module, device, context) in
            [(0x70, Some(0), 0), (0x80, Some(1), 0), (0x90, Some(0), 3)]
        {
            program.call("cuModuleLoad", module, |call| {
                (call.device, call.context) = (device, context);
            });
        }
    };
    fill(&mut program);
    program.call("cudaDeviceReset", 0, |call| call.device = None);
    assert_eq!(program.addresses().len(), 5, "which device is not known");
    program.call("cudaDeviceReset", 0, |_| {});
    assert_eq!(program.addresses(), [0x2000, 0x3000, 0x5000]);
    let handles = &program.process().handles;
    let loaded = |module: u64| handles.get((HandleKind::Module, module)).is_some();
    assert_eq!([0x70, 0x80, 0x90].map(loaded), [false, true, true]);
    // The only device is that of all memory.
    program.call("cuDeviceGetCount", 0, |call| detail(call).out = 7 << 32 | 1);
    assert!(program.process().identity.single_gpu);
    program.call("cudaDeviceReset", 0, |call| call.device = None);
    assert_eq!(program.addresses(), [0x2000, 0x3000]);
    program.call("cuDeviceGetCount", 0, |call| detail(call).out = 7 << 32 | 2);
    assert!(!program.process().identity.single_gpu);
}

#[test]
fn the_last_reference_to_a_primary_context_ends_it() {
    let mut program = Program::new();
    let release = |program: &mut Program| {
        program.call("cuDevicePrimaryCtxRelease_v2", 0, |_| {});
        program.addresses().len()
    };
    program.allocate_in(0x1000, Some(0), 0);
    assert_eq!(release(&mut program), 1);
    for _ in 0..2 {
        program.call("cuDevicePrimaryCtxRetain", 0, |_| {});
    }
    assert_eq!(release(&mut program), 1);
    assert_eq!(release(&mut program), 0);
}

#[test]
fn references_from_before_tracing_may_keep_a_primary_context() {
    let mut program = Program::new();
    program.ledger = Default::default();
    let begun = Event::Process(Task {
        from_birth: false,
        ..crate::task(PID, PID, 0)
    });
    program.ledger.apply(&begun, |_| Identity::default());
    program.allocate_in(0x1000, Some(0), 0);
    program.call("cuDevicePrimaryCtxRetain", 0, |_| {});
    program.call("cuDevicePrimaryCtxRelease_v2", 0, |_| {});
    assert_eq!(program.addresses(), [0x1000]);
}

#[test]
fn contexts_are_judged_by_their_series() {
    let mut program = Program::new();
    for context in 1..=3 {
        program.call("cuCtxCreate_v2", 0xc0, |call| call.context = context);
    }
    let handles = &program.process().handles;
    let shape = handles.shape(HandleKind::Context, handles.sites(), program.now_ns);
    assert_eq!((shape.left.iter().sum::<u64>(), shape.begin_ns), (3, 1010));
}

#[test]
fn a_green_context_keeps_the_primary_one() {
    let mut program = Program::new();
    let retain = |program: &mut Program, symbol, handle| {
        program.call(symbol, handle, |_| {});
    };
    retain(&mut program, "cuDevicePrimaryCtxRetain", 0x10);
    retain(&mut program, "cuGreenCtxCreate", 0x20);
    program.allocate_in(0x1000, Some(0), 0);
    program.call("cuDevicePrimaryCtxRelease_v2", 0, |_| {});
    let green = |program: &Program| program.process().handles.live(HandleKind::GreenContext);
    assert_eq!((program.gpu_bytes(), green(&program)), (8, 1));
    program.call("cuGreenCtxDestroy", 0x20, |call| call.device = None);
    assert_eq!((program.gpu_bytes(), green(&program)), (0, 0));
}

#[test]
fn logical_endpoints_are_counted_by_their_numbers() {
    let mut program = Program::new();
    for number in [7, 8] {
        program.call("cuLogicalEndpointCreate", number, |_| {});
    }
    program.call("cuLogicalEndpointDestroy", 7, |_| {});
    assert_eq!(
        program.process().handles.live(HandleKind::LogicalEndpoint),
        1
    );
}
