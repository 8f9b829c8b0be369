//! Size of a process, in units of about 64 bytes.

use super::{Program, detail, values};

/// Units of a site, and of the first thread.
const SITE: usize = 24;
const THREAD: usize = 2;
/// Units of an object with a handle, and of the site of the first.
const OBJECT: usize = 2;
const OBJECTS: usize = 16;

/// Units more after a call of `symbol`.
fn more(
    program: &mut Program,
    symbol: &str,
    address: u64,
    with: impl FnOnce(&mut gpuprobe_model::event::Call),
) -> usize {
    let others = |program: &Program| program.process().kept() - program.process().held();
    let before = others(program);
    program.call(symbol, address, with);
    others(program) - before
}

#[test]
fn everything_that_grows_with_calls_is_counted() {
    let mut program = Program::new();
    assert_eq!(program.process().kept(), 0);
    let mut first_and_next = |symbol: &str, first: usize, next: usize| {
        for (number, expected) in [(1, first), (2, next), (3, next)] {
            let found = more(&mut program, symbol, number << 20, |call| {
                detail(call).out = number << 24 | 0x100;
                values(call, &[number << 28]);
                call.context = number as u16;
            });
            assert_eq!(found, expected, "{symbol} {number}");
        }
    };
    first_and_next("cudaMalloc", THREAD + SITE, 0);
    first_and_next("cuModuleLoad", OBJECTS + OBJECT, OBJECT);
    first_and_next("cuModuleGetGlobal_v2", SITE + 4, 4);
    first_and_next("cudaIpcOpenMemHandle", SITE + 1, 1);
    first_and_next("cuCtxCreate_v2", OBJECTS + OBJECT, OBJECT);
    // A piece and its handle.
    first_and_next("cuMemCreate", SITE + 2, 2);
    first_and_next("cuMemAddressReserve", 1, 1);
    first_and_next("cuMemPoolCreate", OBJECTS + OBJECT + 1, OBJECT + 1);
    // A graph and its node.
    first_and_next("cuGraphAddMemAllocNode", SITE + 2, 2);
    assert_eq!(program.process().held(), 3 + 3 + 3 + 3);
}

#[test]
fn mappings_captures_and_frees_in_flight_are_counted() {
    let mut program = Program::new();
    program.call("cudaMalloc", 0x100, |_| {});
    // The free of what was there has not returned.
    assert_eq!(more(&mut program, "cudaMalloc", 0x100, |_| {}), 1);
    assert_eq!(more(&mut program, "cudaFree", 0x100, |_| {}), 0);
    program.call("cuMemCreate", 0x50, |_| {});
    assert_eq!(more(&mut program, "cuMemCreate", 0x50, |_| {}), 1);
    // A mapping, and where its piece is mapped.
    let map = |program: &mut Program, address| {
        more(program, "cuMemMap", address, |call| values(call, &[0x50]))
    };
    assert_eq!(
        [map(&mut program, 0x1000), map(&mut program, 0x2000)],
        [2, 2]
    );
    let capture = |program: &mut Program, address, number| {
        more(program, "cudaMallocAsync", address, |call| {
            (call.captured, call.context) = (true, number);
        })
    };
    let found = [(0x3000, 5), (0x4000, 5), (0x5000, 6)];
    let found = found.map(|(address, number)| capture(&mut program, address, number));
    assert_eq!(found, [SITE + 2, 1, 2]);
    // Its nodes are a graph's, with an executable one.
    program.call("cuStreamEndCapture", 0, |call| {
        (call.context, detail(call).out) = (5, 0xa);
    });
    let built = more(&mut program, "cuGraphInstantiateWithFlags", 0xa, |call| {
        detail(call).out = 0xe;
    });
    assert_eq!(built, 2 + 1 + OBJECTS + OBJECT);
}

#[test]
fn stacks_take_room_by_their_length() {
    let mut program = Program::new();
    let stack = |length: u64| {
        let location = |address| gpuprobe_model::stack::Location {
            address,
            module: None,
            offset: address,
        };
        std::rc::Rc::new(gpuprobe_model::stack::CallStack {
            locations: (0..length).map(location).collect(),
            is_complete: true,
        })
    };
    let mut kept = Vec::new();
    // Two numbers take a unit; the last names a stack that is known.
    for (number, length) in [(1, 1), (2, 10), (3, 21), (4, 21)] {
        program.ledger.set_stack(super::PID, number, stack(length));
        kept.push(program.process().sites.kept());
    }
    assert_eq!(kept, [2, 2 + 7 + 1, 2 + 7 + 12 + 1, 2 + 7 + 12 + 2]);
}
