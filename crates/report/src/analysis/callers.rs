//! Callers of a file: functions with their call stacks, numbered for the engine.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use anyhow::Result;
use hashbrown::{HashMap, HashSet};

use gpuprobe_cuda::names::plain_name;
use gpuprobe_cuda::{Belongs, FUNCTIONS, MemoryKind};
use gpuprobe_model::stack::{Frame, Language, Location, Symbolize, bare_frame};
use gpuprobe_recording::chains::{self, Stack};
use gpuprobe_recording::row::integer;
use gpuprobe_recording::{Database, OriginatingCall, Resolver, Trace};

use crate::fold::{self, PythonLines};
use crate::memleak::side;

/// Number of callers beyond which a new one is compared by its frames with the others: exports may
/// have a separate call chain for every call.
const MANY: usize = 1 << 16;

/// Key of a caller before its stack is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Caller {
    chain: Option<i64>,
    function: u16,
    trace: Trace,
}

/// The displayed contents of a caller.
type Content = (Stack, u16, Trace);

/// Callers grouped by the Python lines of their stacks.
#[derive(Default)]
struct ByLines {
    lines: PythonLines,
    /// The first caller of each group.
    first: HashMap<(Belongs, Vec<u32>), u32>,
    /// The representative of each caller, by its number.
    ids: Vec<u32>,
}

/// The callers of a file.
pub struct Callers<'a> {
    resolver: Resolver<'a>,
    list: Vec<Caller>,
    numbers: HashMap<Caller, u32>,
    /// Rows of the function table, and numbers beyond it, by `nameId`.
    functions: HashMap<i64, u16>,
    /// Names of the functions beyond the table.
    others: Vec<Rc<str>>,
    /// The first caller with each contents.
    contents: RefCell<HashMap<Content, u32>>,
    /// Cache of the first caller with the same contents.
    known: RefCell<HashMap<u32, u32>>,
    /// The same where callers with the same Python lines are one.
    folded: RefCell<ByLines>,
    /// Call chains that are truncated.
    cut: HashSet<i64>,
}

impl<'a> Callers<'a> {
    /// An empty table of callers.
    pub fn new(database: &'a Database) -> Result<Self> {
        let mut cut = HashSet::new();
        let columns = ["chain", "isComplete"];
        database.each("GPUPROBE_STACKS", &columns, "", |row| {
            if let (Some(chain), Some(0)) = (integer(row, 0), integer(row, 1)) {
                cut.insert(chain);
            }
        })?;
        Ok(Self {
            resolver: Resolver::new(database)?,
            list: Vec::new(),
            numbers: HashMap::new(),
            functions: HashMap::new(),
            others: Vec::new(),
            contents: RefCell::default(),
            known: RefCell::default(),
            folded: RefCell::default(),
            cut,
        })
    }

    /// Numbers of the caller of a memory event, and of the function that it called. If the function
    /// is unknown, the kind of memory stands for it.
    pub(super) fn number(&mut self, origin: OriginatingCall, kind: MemoryKind) -> (u32, u16) {
        let caller = Caller {
            chain: origin.chain,
            function: match origin.function {
                Some(id) => self.function_of(id),
                None => self.function_named(kind.name()),
            },
            trace: origin.trace,
        };
        if let Some(&number) = self.numbers.get(&caller) {
            return (number, caller.function);
        }
        if self.list.len() >= MANY {
            let content = self.content_of(&caller);
            if let Some(&number) = self.contents.borrow().get(&content) {
                return (number, caller.function);
            }
        }
        let number = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        self.list.push(caller);
        self.numbers.insert(caller, number);
        if self.list.len() > MANY {
            self.caller_id(number);
        }
        (number, caller.function)
    }

    /// Row of the function with this `nameId`.
    pub(super) fn function_of(&mut self, id: i64) -> u16 {
        if let Some(&known) = self.functions.get(&id) {
            return known;
        }
        let name = self.resolver.string(id);
        let plain = plain_name(&name);
        let row = |name: &str| FUNCTIONS.iter().position(|f| f.symbol == name);
        let number = match row(&name).or_else(|| row(plain)) {
            Some(row) => u16::try_from(row).unwrap_or(u16::MAX),
            None => self.function_named(plain),
        };
        self.functions.insert(id, number);
        number
    }

    /// Number of a function that is not in the function table. There are at most as many as
    /// numbers.
    fn function_named(&mut self, name: &str) -> u16 {
        let known = self.others.iter().position(|other| **other == *name);
        let place = known.unwrap_or(self.others.len());
        if known.is_none() {
            self.others.push(name.into());
        }
        u16::try_from(FUNCTIONS.len() + place).unwrap_or(u16::MAX)
    }

    /// How much is known of the calls of this caller.
    pub(super) fn trace(&self, number: u32) -> Trace {
        self.get(number)
            .map_or(Trace::Invalid, |caller| caller.trace)
    }

    /// Call stack of this caller, innermost frame first; empty if unknown.
    pub(super) fn stack(&self, number: u32) -> Stack {
        let chain = self.get(number).and_then(|caller| caller.chain);
        self.stack_of(chain)
    }

    /// The function that this caller called.
    pub(crate) fn called(&self, number: u32) -> Option<Cow<'static, str>> {
        let function = self.get(number)?.function;
        match FUNCTIONS.get(usize::from(function)) {
            Some(function) => Some(function.symbol.into()),
            None => self.function(function),
        }
    }

    /// The string with this id.
    pub(super) fn string(&self, id: i64) -> Rc<str> {
        self.resolver.string(id)
    }

    fn get(&self, number: u32) -> Option<&Caller> {
        self.list.get(number as usize)
    }

    fn stack_of(&self, chain: Option<i64>) -> Stack {
        chain.map_or_else(|| Stack::from([]), |chain| self.resolver.stack(chain))
    }

    /// Key that the stacks of one call site have in common.
    fn key_of(&self, number: u32, lines: &mut PythonLines) -> Option<(Belongs, Vec<u32>)> {
        let caller = self.get(number)?;
        let stack = self.stack_of(caller.chain);
        let python = stack
            .iter()
            .filter(|frame| frame.language == Language::Python);
        let numbered: Vec<_> = python.filter_map(|one| lines.number(&frame(one))).collect();
        Some((side(caller.function), fold::key(&numbered)?))
    }

    fn content_of(&self, caller: &Caller) -> Content {
        (self.stack_of(caller.chain), caller.function, caller.trace)
    }
}

impl Symbolize for Callers<'_> {
    /// Files have no locations.
    fn frames(&self, _pid: u32, location: &Location, _is_innermost: bool) -> Vec<Frame> {
        vec![bare_frame(location)]
    }

    fn caller(&self, number: u32) -> (Vec<Frame>, bool) {
        let Some(chain) = self.get(number).and_then(|caller| caller.chain) else {
            return (Vec::new(), false);
        };
        let stack = self.resolver.stack(chain);
        let frames: Vec<_> = stack.iter().map(frame).collect();
        let is_complete = !frames.is_empty() && !self.cut.contains(&chain);
        (frames, is_complete)
    }

    fn caller_trace(&self, number: u32) -> Option<&'static str> {
        Some(self.trace(number).name())
    }

    fn caller_id(&self, number: u32) -> u32 {
        if let Some(&known) = self.known.borrow().get(&number) {
            return known;
        }
        // In order, so that the lowest number with some contents is their id, whichever is looked
        // up first.
        let known = self.known.borrow().len();
        for next in (0..).take(number as usize + 1).skip(known) {
            let Some(caller) = self.get(next) else {
                return number;
            };
            let content = self.content_of(caller);
            let first = *self.contents.borrow_mut().entry(content).or_insert(next);
            self.known.borrow_mut().insert(next, first);
        }
        self.known.borrow().get(&number).copied().unwrap_or(number)
    }

    fn folded_id(&self, number: u32) -> u32 {
        let mut folded = self.folded.borrow_mut();
        let ByLines { lines, first, ids } = &mut *folded;
        // In order, as for contents.
        for next in (0..).take(number as usize + 1).skip(ids.len()) {
            let own = self.caller_id(next);
            let key = match ids.get(own as usize) {
                // Another number of a known caller.
                Some(&known) => {
                    ids.push(known);
                    continue;
                }
                None => self.key_of(next, lines),
            };
            ids.push(key.map_or(own, |key| *first.entry(key).or_insert(own)));
        }
        ids.get(number as usize).copied().unwrap_or(number)
    }

    fn function(&self, number: u16) -> Option<Cow<'static, str>> {
        let other = usize::from(number).checked_sub(FUNCTIONS.len())?;
        let name = self.others.get(other)?;
        Some(name.to_string().into())
    }
}

pub(super) fn frame(frame: &chains::ChainFrame) -> Frame {
    Frame {
        function: frame.function.to_string(),
        file: frame.file.as_deref().map(str::to_owned),
        line: frame.line,
        source: frame.source.as_deref().map(str::to_owned),
        module: frame.code_file().to_owned(),
        address: frame.address,
        language: frame.language,
        inlined: frame.inlined,
    }
}
