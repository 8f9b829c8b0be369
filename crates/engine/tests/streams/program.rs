//! A simulated program: what its driver does, and the events of its calls.

use std::collections::BTreeMap;

use gpuprobe_model::event::{Call, Event, Task};

use crate::account::{Account, Context, Space};
use crate::engine::{Args, Engine};
use crate::graphs::Graphs;
use crate::vmm::Memory;

pub(crate) const DEVICES: u16 = 2;
/// Device addresses: one block, or one granule of a mapping, each.
pub(crate) const BASE: u64 = 0x1000_0000;
pub(crate) const GRANULE: u64 = 0x20_0000;

/// A program in a process, from its start, or from when it is first seen, to its end.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) pid: u32,
    pub(crate) account: Account,
    /// Its contexts, the primary ones first.
    pub(crate) contexts: Vec<Context>,
    /// References to the primary contexts.
    pub(crate) references: [u32; DEVICES as usize],
    /// Calls that have not returned, and the blocks that they free, by their start.
    pub(crate) open: Vec<Call>,
    pub(crate) freeing: BTreeMap<u64, u32>,
    pub(crate) memory: Memory,
    pub(crate) graphs: Graphs,
}

pub(crate) fn task(pid: u32, tid: u32, time_ns: u64) -> Task {
    Task {
        from_birth: false,
        inner_pid: pid,
        cgroup: 0,
        pid,
        tid,
        uid: 1000,
        process: pid,
        time_ns,
        comm: "train".into(),
    }
}

pub(crate) fn address_of(slot: u64) -> u64 {
    BASE + slot * GRANULE
}

/// The lowest number from `first`, in steps of `step`, that is not in use.
pub(crate) fn lowest(first: u64, step: u64, used: impl Fn(u64) -> bool) -> u64 {
    let mut number = first;
    while used(number) {
        number += step;
    }
    number
}

impl Program {
    pub(crate) fn start(
        engine: &mut Engine,
        pid: u32,
        from_birth: bool,
        sees_one_gpu: bool,
    ) -> Self {
        let comm = if sees_one_gpu { "one" } else { "all" };
        let started = Task {
            from_birth,
            comm: comm.into(),
            ..task(pid, pid, engine.tick())
        };
        engine.send(pid, &Event::Process(started));
        let primary = |device| Context { number: 0, device };
        let devices = if sees_one_gpu { 1 } else { DEVICES };
        Self {
            pid,
            account: Account::new(from_birth, sees_one_gpu),
            contexts: (0..devices).map(primary).collect(),
            references: [0; DEVICES as usize],
            open: Vec::new(),
            freeing: BTreeMap::new(),
            memory: Memory::default(),
            graphs: Graphs::default(),
        }
    }

    /// The device of this number that the program can see.
    pub(crate) fn device(&self, device: u16) -> u16 {
        if self.account.sees_one_gpu { 0 } else { device }
    }

    /// Sends a call that returns at once; returns the time of its return.
    pub(crate) fn call(&mut self, engine: &mut Engine, symbol: &str, args: Args) -> u64 {
        let call = engine.enter(self.pid, symbol, args);
        engine.leave(call)
    }

    pub(crate) fn fail(&mut self, engine: &mut Engine, symbol: &str, args: Args, result: i32) {
        let call = engine.enter(self.pid, symbol, args);
        engine.leave(Call { result, ..call });
    }

    /// A call that the driver has acted on; its event is sent when it returns.
    pub(crate) fn take_back(
        &mut self,
        engine: &mut Engine,
        symbol: &str,
        args: Args,
        (start_ns, late): (u64, bool),
    ) {
        let call = engine.enter(self.pid, symbol, args);
        assert_eq!(call.start_ns, start_ns);
        self.open.push(call);
        if !late {
            self.leave(engine, self.open.len() - 1);
        }
    }

    /// The n-th open call returns.
    pub(crate) fn leave(&mut self, engine: &mut Engine, n: usize) {
        let call = self.open.swap_remove(n);
        let start_ns = call.start_ns;
        let at_ns = engine.leave(call);
        self.memory.returned(start_ns);
        if let Some(block) = self.freeing.remove(&start_ns) {
            self.account.blocks.remove(&block);
        }
        self.settle(engine, at_ns);
    }

    pub(crate) fn leave_all(&mut self, engine: &mut Engine) {
        while !self.open.is_empty() {
            self.leave(engine, 0);
        }
    }

    /// An event has been applied.
    pub(crate) fn settle(&mut self, engine: &mut Engine, at_ns: u64) {
        self.collect();
        let bytes = self.account.settle(at_ns);
        engine.settle(self.pid, bytes, at_ns);
    }

    /// Whether the driver uses these device addresses.
    pub(crate) fn is_taken(&self, slot: u64) -> bool {
        let address = address_of(slot);
        let is_block = self.account.is_taken(Space::Device, address);
        is_block || self.graphs.has(address) || self.memory.is_mapped(slot)
    }

    pub(crate) fn free_slot(&self) -> u64 {
        lowest(0, 1, |slot| self.is_taken(slot))
    }
}
