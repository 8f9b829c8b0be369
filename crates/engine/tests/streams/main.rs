//! The engine against a simple oracle, over streams that mix everything that memory goes through:
//! several processes that end, are replaced or begin again, with contexts on several devices,
//! addresses and handles that are reused before their free has returned, mappings and graphs.

#![allow(missing_docs, clippy::unwrap_used)]

mod account;
mod engine;
mod graphs;
mod memory;
mod program;
mod vmm;

use std::collections::BTreeMap;

use gpuprobe_model::event::Event;
use proptest::collection::vec;
use proptest::prelude::*;

use account::Figures;
use engine::Engine;
use program::{DEVICES, Program, task};
use vmm::SLOTS;

const PROCESSES: u32 = 2;

/// A step of one of the processes.
#[derive(Clone, Copy, Debug)]
enum Step {
    Memory(memory::Step),
    Vmm(vmm::Step),
    Graph(graphs::Step),
    /// The process ends, seen or unseen, and the next one with its id begins.
    Exit(bool, Start),
    /// The process executes another program.
    Exec(Start),
    /// A report is made, which changes nothing.
    Report,
}

/// How a program begins.
#[derive(Clone, Copy, Debug)]
struct Start {
    from_birth: bool,
    sees_one_gpu: bool,
}

fn start() -> impl Strategy<Value = Start> {
    let both = any::<(bool, bool)>();
    both.prop_map(|(from_birth, sees_one_gpu)| Start {
        from_birth,
        sees_one_gpu,
    })
}

fn memory_step() -> impl Strategy<Value = memory::Step> {
    use memory::Step::*;
    let (way, device, n) = (|| 0..memory::WAYS.len(), || 0..DEVICES, || 0usize..12);
    prop_oneof![
        24 => (way(), n(), 1u64..1000, any::<bool>())
            .prop_map(|(way, context, bytes, tells)| Allocate(way, context, bytes, tells)),
        16 => (n(), 0usize..2, any::<bool>()).prop_map(|(n, which, late)| Free(n, which, late)),
        8 => (0usize..6).prop_map(Return),
        1 => (way(), 1i32..3).prop_map(|(way, result)| FailAllocation(way, result)),
        1 => way().prop_map(FreeUnknown),
        1 => way().prop_map(FreeNull),
        2 => device().prop_map(CreateContext),
        1 => (0usize..3).prop_map(DestroyContext),
        2 => device().prop_map(Retain),
        2 => device().prop_map(Release),
        1 => device().prop_map(Reset),
        2 => (0u32..3).prop_map(EndThread),
    ]
}

fn vmm_step() -> impl Strategy<Value = vmm::Step> {
    use vmm::Step::*;
    let (late, n, slot) = (any::<bool>, || 0usize..6, || 0..SLOTS);
    prop_oneof![
        3 => (1u64..4, proptest::option::weighted(0.8, 0..DEVICES))
            .prop_map(|(granules, device)| Create(granules, device)),
        1 => (1u64..4).prop_map(Import),
        6 => (n(), slot()).prop_map(|(n, slot)| Map(n, slot)),
        6 => (slot(), 1usize..4, late()).prop_map(|(slot, most, late)| Unmap(slot, most, late)),
        2 => slot().prop_map(Retain),
        3 => (n(), late()).prop_map(|(n, late)| Release(n, late)),
        1 => (1u64..9).prop_map(Reserve),
        1 => (n(), late()).prop_map(|(n, late)| Unreserve(n, late)),
    ]
}

fn graph_step() -> impl Strategy<Value = graphs::Step> {
    use graphs::Step::*;
    let n = || 0usize..3;
    prop_oneof![
        2 => Just(New),
        4 => (n(), 1u64..1000, 0..DEVICES)
            .prop_map(|(n, bytes, device)| Allocate(n, bytes, device)),
        2 => (n(), 0usize..4).prop_map(|(n, which)| Free(n, which)),
        1 => Just(Begin),
        2 => (n(), 1u64..1000).prop_map(|(n, bytes)| Capture(n, bytes)),
        1 => (n(), any::<bool>()).prop_map(|(n, succeeds)| End(n, succeeds)),
        3 => n().prop_map(Build),
        6 => n().prop_map(Launch),
        1 => n().prop_map(Destroy),
        1 => n().prop_map(DestroyExecutable),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        80 => memory_step().prop_map(Step::Memory),
        50 => vmm_step().prop_map(Step::Vmm),
        50 => graph_step().prop_map(Step::Graph),
        2 => (any::<bool>(), start()).prop_map(|(is_seen, start)| Step::Exit(is_seen, start)),
        2 => start().prop_map(Step::Exec),
        4 => Just(Step::Report),
    ]
}

/// All processes, and those that have ended: id, when that was seen, and what they left.
struct Stream {
    engine: Engine,
    programs: BTreeMap<u32, Program>,
    ended: Vec<(u32, Option<u64>, Figures)>,
}

impl Stream {
    /// The first process was there before, the second one sees one GPU.
    fn new() -> Self {
        let mut engine = Engine::new();
        let starts = (1..=PROCESSES).map(|n| {
            let pid = 10 * n;
            (pid, Program::start(&mut engine, pid, n > 1, n == 2))
        });
        let programs = starts.collect();
        Self {
            engine,
            programs,
            ended: Vec::new(),
        }
    }

    fn step(&mut self, n: u32, step: Step) {
        let pid = 10 * n;
        let engine = &mut self.engine;
        let program = self.programs.get_mut(&pid).unwrap();
        match step {
            Step::Memory(step) => program.step(engine, step),
            Step::Vmm(step) => program.vmm(engine, step),
            Step::Graph(step) => program.graph(engine, step),
            Step::Exit(is_seen, start) => {
                let exit = is_seen.then_some(Event::Exit as fn(_) -> _);
                self.end(pid, exit, start);
            }
            Step::Exec(start) => self.end(pid, Some(Event::Exec), start),
            Step::Report => engine.state.mark_reported(),
        }
        self.check(pid);
    }

    /// The program ends, with the event if there is one, within its open calls.
    fn end(
        &mut self,
        pid: u32,
        event: Option<fn(gpuprobe_model::event::Task) -> Event>,
        start: Start,
    ) {
        let engine = &mut self.engine;
        let at_ns = engine.tick();
        match event {
            Some(event) => engine.send(pid, &event(task(pid, pid, at_ns))),
            None => engine.state.ledger.end_at(pid, None),
        }
        engine.end(pid);
        let next = Program::start(engine, pid, start.from_birth, start.sees_one_gpu);
        let former = self.programs.insert(pid, next).unwrap();
        let ended_ns = event.map(|_| at_ns);
        self.ended.push((pid, ended_ns, former.account.figures()));
    }

    fn check(&self, pid: u32) {
        let program = &self.programs[&pid];
        let process = self.engine.state.ledger.process_of(pid).unwrap();
        assert_eq!(Figures::from(process), program.account.figures(), "{pid}");
        program.check_addresses(&self.engine);
        self.engine.check(pid);
    }

    fn check_all(&self) {
        let ledger = &self.engine.state.ledger;
        self.programs.keys().for_each(|&pid| self.check(pid));
        assert_eq!(ledger.live_processes().count(), self.programs.len());
        let ended = ledger.ended(true);
        let ended: Vec<_> = ended.map(|p| (p.pid, p.ended_ns, p.into())).collect();
        assert_eq!(ended, self.ended);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn streams_that_mix_everything(steps in vec((1..=PROCESSES, step()), 1..500)) {
        let mut stream = Stream::new();
        for (n, step) in steps {
            stream.step(n, step);
        }
        for program in stream.programs.values_mut() {
            program.leave_all(&mut stream.engine);
        }
        stream.check_all();
    }
}
