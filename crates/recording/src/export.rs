//! Exports of Nsight Systems as items: their memory events, each with its call, and the stacks and
//! names that these need.

use anyhow::Result;
use hashbrown::{HashMap, HashSet};

use crate::chains::Resolver;
use crate::memory_rows::{self, MemoryItem, MemoryRow, OriginatingCall, RowFilter};
use crate::row::integer;
use crate::source::{Counts, Source, Take};
use crate::source::{Item, LogNote};
use crate::{Database, Session, ids, kinds};
use gpuprobe_cuda::names::plain_name;
use gpuprobe_cuda::{FUNCTIONS, KindSet, MemoryKind, Modes, Op};
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::event::{Event, MemoryEvent, Task};
use gpuprobe_model::stack::{CallStack, Frame, Location, ModuleId};

/// Number of call chains beyond which new ones are compared by their frames: an export may have a
/// chain for every call.
const MANY: usize = 1 << 16;

/// The memory events of an export; their times are those of the session.
pub struct ExportReader<'a> {
    pub(crate) database: &'a Database,
    pub(crate) session: &'a Session,
}

impl Source for ExportReader<'_> {
    fn clock(&self) -> Option<WallClock> {
        Some(WallClock::at(self.session.wall(0)?, 0))
    }

    fn kinds(&self) -> KindSet {
        KindSet::ALL
    }

    fn modes(&self) -> Modes {
        Modes::MEMORY
    }

    fn is_log(&self) -> bool {
        false
    }

    fn play(&self, counted: RowFilter, take: &mut Take<'_>) -> Result<Counts> {
        let database = self.database;
        let mut cut = HashSet::new();
        let columns = "chain, isComplete";
        database.each("GPUPROBE_STACKS", columns, "WHERE isComplete = 0", |row| {
            cut.extend(integer(row, 0));
        })?;
        let mut events = ExportEvents {
            resolver: Resolver::new(database)?,
            cut,
            take,
            functions: HashMap::new(),
            others: Vec::new(),
            chains: HashMap::new(),
            stacks: HashMap::new(),
            known: HashSet::new(),
            frames: HashMap::new(),
            named: HashSet::new(),
            modules: HashMap::new(),
        };
        let (calls, malformed) = memory_rows::each(database, counted, &mut |item| match item {
            MemoryItem::Row(row, origin) => {
                let event = events.event(row, origin)?;
                (events.take)(Item::Event(event))
            }
            MemoryItem::End(process, time_ns) => {
                let pid = ids::pid(process);
                events.known.retain(|(of, _)| *of != pid);
                (events.take)(Item::Event(Event::Exit(Task {
                    pid,
                    tid: pid,
                    process: pid,
                    inner_pid: pid,
                    time_ns: unsigned(time_ns),
                    ..Task::default()
                })))
            }
        })?;
        let calls = calls.into_iter();
        let calls = calls.map(|(function, called)| Ok((events.function(function)?, called)));
        let calls = calls.collect::<Result<_>>()?;
        Ok(Counts { calls, malformed })
    }
}

struct ExportEvents<'a, 'b> {
    resolver: Resolver<'a>,
    /// Call chains that are truncated.
    cut: HashSet<i64>,
    take: &'b mut Take<'b>,
    /// Rows of the function table, and numbers beyond it, by `nameId`.
    functions: HashMap<i64, u16>,
    /// Names of the functions beyond the table.
    others: Vec<String>,
    /// Numbers of stacks by `callchainId`, and by the numbers of their frames.
    chains: HashMap<i64, u64>,
    stacks: HashMap<Vec<u64>, u64>,
    /// Stacks that processes have.
    known: HashSet<(u32, u64)>,
    /// Numbers of frames without their addresses, and those that are passed on as innermost frames or others.
    frames: HashMap<Frame, u64>,
    named: HashSet<(u64, bool)>,
    modules: HashMap<String, ModuleId>,
}

/// A time as unsigned, as events have it; negative times become 0.
fn unsigned(time_ns: i64) -> u64 {
    u64::try_from(time_ns).unwrap_or(0)
}

impl ExportEvents<'_, '_> {
    fn event(&mut self, row: MemoryRow, origin: OriginatingCall) -> Result<Event> {
        let pid = ids::pid(row.process);
        let recorded = kinds::of_id(row.kind).kind;
        // The kind of memory stands for an unknown function.
        let function = match origin.function {
            Some(id) => self.function(id)?,
            None => self.function_named(recorded.name())?,
        };
        let called = FUNCTIONS.get(usize::from(function)).map(|f| match f.op {
            // The memory of its nodes.
            Op::GraphLaunch => MemoryKind::Graph,
            _ => f.kind,
        });
        let stack = match origin.chain.filter(|_| row.allocates) {
            Some(chain) => self.stack(pid, chain)?,
            None => 0,
        };
        Ok(Event::Memory(MemoryEvent {
            pid,
            tid: origin.thread.map_or(0, ids::tid),
            time_ns: unsigned(row.start_ns),
            address: row.address,
            bytes: row.bytes,
            kind: kinds::of_call(row.kind, called),
            space: recorded.space(),
            device: u16::try_from(row.device).ok(),
            row: function,
            stack,
            is_free: !row.allocates,
            variable: row.variable,
        }))
    }

    /// Row of the function with this `nameId`.
    fn function(&mut self, id: i64) -> Result<u16> {
        if let Some(&known) = self.functions.get(&id) {
            return Ok(known);
        }
        let name = self.resolver.string(id);
        let plain = plain_name(&name);
        let row = |name: &str| FUNCTIONS.iter().position(|f| f.symbol == name);
        let number = match row(&name).or_else(|| row(plain)) {
            Some(row) => u16::try_from(row).unwrap_or(u16::MAX),
            None => self.function_named(plain)?,
        };
        self.functions.insert(id, number);
        Ok(number)
    }

    /// Number of a function that is not in the function table. There are at most as many as
    /// numbers.
    fn function_named(&mut self, name: &str) -> Result<u16> {
        let known = self.others.iter().position(|other| other == name);
        let place = known.unwrap_or(self.others.len());
        let number = u16::try_from(FUNCTIONS.len() + place).unwrap_or(u16::MAX);
        if known.is_none() {
            self.others.push(name.into());
            let _ = (self.take)(Item::Note(LogNote::Function(number, name.to_owned())))?;
        }
        Ok(number)
    }

    /// Number of a call chain in process `pid`, which learns it if it is new; 0 without frames.
    fn stack(&mut self, pid: u32, chain: i64) -> Result<u64> {
        if let Some(&number) = self.chains.get(&chain)
            && self.known.contains(&(pid, number))
        {
            return Ok(number);
        }
        let frames = self.resolver.stack(chain);
        if frames.is_empty() {
            return Ok(0);
        }
        let mut locations = Vec::with_capacity(frames.len());
        for (depth, frame) in frames.iter().enumerate() {
            locations.push(self.location(pid, frame, depth == 0)?);
        }
        let next = self.stacks.len() as u64 + 1;
        let numbers = locations.iter().map(|location| location.offset).collect();
        let number = *self.stacks.entry(numbers).or_insert(next);
        if self.chains.len() < MANY {
            self.chains.insert(chain, number);
        }
        if self.known.insert((pid, number)) {
            let stack = CallStack {
                is_complete: !self.cut.contains(&chain),
                locations,
            };
            let _ = (self.take)(Item::Note(LogNote::Stack(pid, number, stack)))?;
        }
        Ok(number)
    }

    /// A location that stands for `frame`; its offset is the number of the frame.
    fn location(&mut self, pid: u32, frame: &Frame, is_innermost: bool) -> Result<Location> {
        let contents = Frame {
            address: 0,
            ..frame.clone()
        };
        let next = self.frames.len() as u64;
        let number = *self.frames.entry(contents).or_insert(next);
        let module = if frame.language.is_python() {
            ModuleId::PYTHON
        } else {
            let next = u32::try_from(self.modules.len()).unwrap_or(u32::MAX);
            let module = self.modules.entry(frame.module.clone());
            *module.or_insert(ModuleId(next))
        };
        let location = Location {
            address: frame.address,
            module: Some(module),
            offset: number,
        };
        if self.named.insert((number, is_innermost)) {
            let frames = vec![frame.clone()];
            let note = LogNote::Frames(pid, location, is_innermost, frames);
            let _ = (self.take)(Item::Note(note))?;
        }
        Ok(location)
    }
}
