//! Strings and call stacks, looked up when they are needed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use anyhow::Result;
use rusqlite::{ErrorCode, OptionalExtension, Statement};

use super::{Database, row};
use gpuprobe_model::stack::Language;

/// Frames of a call stack that are read at most.
const MAX_FRAMES: usize = 1024;
/// Characters of a string that are kept.
const MAX_CHARACTERS: usize = 4096;
/// Strings and stacks kept in memory; beyond, they are looked up again.
const MAX_CACHED: usize = 1 << 16;

/// What stands for a string that is too long to be one.
const TOO_LONG: &str = "[too long]";

/// What a frame of Python is in that has no file: it says what is missing of the stack.
pub(crate) const PYTHON: &str = "[python]";

/// How the tables call a language.
pub(crate) fn language_name(language: Language) -> &'static str {
    match language {
        Language::Native => "native",
        Language::Python => "python",
    }
}

/// One frame of a call stack. Those that read the same are equal, wherever they are in memory.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The function; its address if it is not known.
    pub function: Rc<str>,
    /// The file that it is in; of Python, its source file, or what stands for it in the tables.
    pub module: Rc<str>,
    /// The address in the process; 0 if it is not known.
    pub address: u64,
    /// The function's name is not known.
    pub unresolved: bool,
    /// The source file, if it is known.
    pub file: Option<Rc<str>>,
    /// The line in it.
    pub line: Option<u32>,
    /// The text of that line, if it is known.
    pub source: Option<Rc<str>>,
    /// What it is written in.
    pub language: Language,
    /// The compiler has put it into the function that comes next.
    pub inlined: bool,
}

impl Frame {
    /// The file that its code is in; none of Python that is in no file of code.
    pub fn code_file(&self) -> &str {
        let is_source = self.file.as_ref() == Some(&self.module) || &*self.module == PYTHON;
        match self.language {
            Language::Python if is_source => "",
            _ => &self.module,
        }
    }

    /// All that people see of it.
    fn contents(&self) -> impl Eq + Hash + '_ {
        let place = (&self.module, &self.file, self.line);
        let flags = (self.unresolved, self.language, self.inlined);
        (&self.function, place, flags)
    }
}

impl PartialEq for Frame {
    fn eq(&self, other: &Self) -> bool {
        self.contents() == other.contents()
    }
}

impl Eq for Frame {}

impl Hash for Frame {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.contents().hash(state);
    }
}

/// A call stack, innermost frame first.
pub type Stack = Rc<[Frame]>;

/// Looks up strings and call stacks of a [`Database`].
pub struct Resolver<'a> {
    strings: Option<RefCell<Statement<'a>>>,
    chains: Option<RefCell<Statement<'a>>>,
    /// Source files and lines, which only our recordings have.
    sources: Option<RefCell<Statement<'a>>>,
    /// What is added to a `callchainId` to find the chain.
    offset: i64,
    cached_strings: RefCell<HashMap<i64, Rc<str>>>,
    cached_stacks: RefCell<HashMap<i64, Stack>>,
}

impl<'a> Resolver<'a> {
    /// A resolver for `database`.
    ///
    /// # Errors
    /// Those of the file.
    pub fn new(database: &'a Database) -> Result<Self> {
        let columns = ["symbol", "module", "unresolved", "originalIP"];
        let rest = format!("WHERE id = ?1 ORDER BY stackDepth LIMIT {MAX_FRAMES}");
        let chains = database.select("CUDA_CALLCHAINS", &columns, &rest)?;
        let columns = ["depth", "file", "line", "isInlined", "language", "source"];
        let rest = format!("WHERE chain = ?1 LIMIT {MAX_FRAMES}");
        let sources = database.select("GPUPROBE_FRAMES", &columns, &rest)?;
        let strings = database.select("StringIds", &["value"], "WHERE id = ?1")?;
        Ok(Self {
            strings: strings.map(RefCell::new),
            chains: chains.map(RefCell::new),
            sources: sources.map(RefCell::new),
            offset: chain_offset(database)?,
            cached_strings: RefCell::default(),
            cached_stacks: RefCell::default(),
        })
    }

    /// The string `id`; its number in brackets if there is none.
    pub fn string(&self, id: i64) -> Rc<str> {
        if let Some(known) = self.cached_strings.borrow().get(&id) {
            return Rc::clone(known);
        }
        let found: Rc<str> = match self.read_string(id) {
            Ok(Some(text)) => text.into(),
            Ok(None) => format!("[{id}]").into(),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::TooBig) => TOO_LONG.into(),
            Err(error) => {
                tracing::debug!("string {id}: {error}");
                format!("[{id}]").into()
            }
        };
        let mut cache = self.cached_strings.borrow_mut();
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        cache.insert(id, Rc::clone(&found));
        found
    }

    fn read_string(&self, id: i64) -> rusqlite::Result<Option<String>> {
        let Some(strings) = &self.strings else {
            return Ok(None);
        };
        let mut strings = strings.borrow_mut();
        let text = strings
            .query_row([id], |found| Ok(row::text(found, 0)))
            .optional()?
            .flatten();
        Ok(
            text.map(|text| match text.char_indices().nth(MAX_CHARACTERS) {
                Some((end, _)) => format!("{}...", &text[..end]),
                None => text,
            }),
        )
    }

    /// The call stack that a `callchainId` refers to, innermost frame first; empty if there is
    /// none.
    pub fn stack(&self, chain: i64) -> Stack {
        if let Some(known) = self.cached_stacks.borrow().get(&chain) {
            return Rc::clone(known);
        }
        let frames: Stack = self
            .read_stack(chain)
            .unwrap_or_else(|error| {
                tracing::debug!("call stack {chain}: {error}");
                Vec::new()
            })
            .into();
        let mut cache = self.cached_stacks.borrow_mut();
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        cache.insert(chain, Rc::clone(&frames));
        frames
    }

    fn read_stack(&self, chain: i64) -> rusqlite::Result<Vec<Frame>> {
        let mut frames = Vec::new();
        let Some(chains) = &self.chains else {
            return Ok(frames);
        };
        let mut chains = chains.borrow_mut();
        let mut rows = chains.query([chain.saturating_add(self.offset)])?;
        while let Some(found) = rows.next()? {
            let symbol = row::integer(found, 0).map(|id| self.string(id));
            let module = row::integer(found, 1).map(|id| self.string(id));
            let address = row::integer(found, 3).unwrap_or(0);
            frames.push(Frame {
                function: symbol.unwrap_or_else(|| format!("{address:#x}").into()),
                module: module.unwrap_or_else(|| "[unknown]".into()),
                address: address.cast_unsigned(),
                unresolved: row::integer(found, 2).is_some_and(|flag| flag != 0),
                file: None,
                line: None,
                source: None,
                language: Language::Native,
                inlined: false,
            });
        }
        self.read_sources(chain, &mut frames)?;
        Ok(frames)
    }

    fn read_sources(&self, chain: i64, frames: &mut [Frame]) -> rusqlite::Result<()> {
        let Some(sources) = &self.sources else {
            return Ok(());
        };
        let mut sources = sources.borrow_mut();
        let mut rows = sources.query([chain])?;
        while let Some(found) = rows.next()? {
            let depth = row::integer(found, 0).and_then(|depth| usize::try_from(depth).ok());
            // The depth is the place among the rows, which begin with 0.
            let Some(frame) = depth.and_then(|depth| frames.get_mut(depth)) else {
                continue;
            };
            frame.file = row::integer(found, 1).map(|id| self.string(id));
            frame.line = row::integer(found, 2).and_then(|line| u32::try_from(line).ok());
            frame.inlined = row::integer(found, 3).is_some_and(|flag| flag != 0);
            let language = row::integer(found, 4).map(|id| self.string(id));
            frame.language = language_of(language.as_deref(), frame.file.as_deref());
            frame.source = row::integer(found, 5).map(|id| self.string(id));
        }
        Ok(())
    }
}

/// The language of a frame; recordings of older versions tell Python by the names of files only.
fn language_of(name: Option<&str>, file: Option<&str>) -> Language {
    let is_python = match name {
        Some(name) => name == language_name(Language::Python),
        None => file.is_some_and(|file| file.ends_with(".py")),
    };
    if is_python {
        Language::Python
    } else {
        Language::Native
    }
}

/// Exports of 2021 and 2022 number the chains from 1 but refer to them from 0.
fn chain_offset(database: &Database) -> Result<i64> {
    let mut ends = (i64::MAX, i64::MIN);
    let mut referred = (i64::MAX, i64::MIN);
    if !database.has_table("CUDA_CALLCHAINS") {
        return Ok(0);
    }
    // The first and the last id come from the primary key's index.
    for order in ["ASC", "DESC"] {
        let rest = format!("ORDER BY id {order} LIMIT 1");
        database.each("CUDA_CALLCHAINS", &["id"], &rest, |found| {
            if let Some(id) = row::integer(found, 0) {
                ends = (ends.0.min(id), ends.1.max(id));
            }
        })?;
    }
    if ends.0 == 0 || database.is_ours() {
        return Ok(0);
    }
    let backtraces = "WHERE eventClass = 67 AND callchainId IS NOT NULL";
    database.each(
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        &["callchainId"],
        backtraces,
        |found| {
            if let Some(id) = row::integer(found, 0) {
                referred = (referred.0.min(id), referred.1.max(id));
            }
        },
    )?;
    let shifted = referred.0 == 0 && referred.1.checked_add(1) == Some(ends.1);
    Ok(i64::from(shifted))
}
