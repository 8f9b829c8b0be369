//! Strings and call stacks of a file, loaded on demand.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use anyhow::Result;
use rusqlite::{ErrorCode, OptionalExtension, Statement};

use super::{Database, row};
use gpuprobe_model::stack::{Frame, Language};

/// Maximum number of frames that are read of a call stack.
const MAX_FRAMES: usize = 1024;
/// Maximum number of characters that are kept of a string.
const MAX_CHARACTERS: usize = 4096;
/// Maximum number of cached strings and stacks; others are read again.
const MAX_CACHED: usize = 1 << 16;

/// Placeholder for a string beyond SQLite's limit.
const TOO_LONG: &str = "[too long]";

/// Module name of a Python pseudo frame without a file, which says what is missing in the stack.
pub(crate) const PYTHON: &str = "[python]";

/// One frame of a call stack. Equality compares the displayed contents.
#[derive(Clone, Debug)]
pub struct ChainFrame {
    /// Name of the function; its address if unknown.
    pub function: Rc<str>,
    /// File that contains the code; for Python, the source file or its placeholder in the tables.
    pub module: Rc<str>,
    /// Address in the process; 0 if unknown.
    pub address: u64,
    /// The function's name is unknown.
    pub unresolved: bool,
    /// Source file, if known.
    pub file: Option<Rc<str>>,
    /// Line in the source file.
    pub line: Option<u32>,
    /// Text of the line, if known.
    pub source: Option<Rc<str>>,
    /// Language of the function.
    pub language: Language,
    /// The function was inlined into the next frame.
    pub inlined: bool,
}

impl ChainFrame {
    /// File that contains the machine code; empty for Python frames outside of one.
    pub fn code_file(&self) -> &str {
        let is_source = self.file.as_ref() == Some(&self.module) || &*self.module == PYTHON;
        match self.language.is_python() && is_source {
            true => "",
            false => &self.module,
        }
    }

    /// The displayed contents.
    fn contents(&self) -> impl Eq + Hash + '_ {
        let place = (&self.module, &self.file, self.line);
        let flags = (self.unresolved, self.language, self.inlined);
        (&self.function, place, flags)
    }
}

impl From<&ChainFrame> for Frame {
    fn from(frame: &ChainFrame) -> Self {
        Self {
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
}

impl PartialEq for ChainFrame {
    fn eq(&self, other: &Self) -> bool {
        self.contents() == other.contents()
    }
}

impl Eq for ChainFrame {}

impl Hash for ChainFrame {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.contents().hash(state);
    }
}

/// A call stack, innermost frame first.
pub type Stack = Rc<[ChainFrame]>;

/// Loads strings and call stacks of a [`Database`].
pub struct Resolver<'a> {
    strings: Option<RefCell<Statement<'a>>>,
    chains: Option<RefCell<Statement<'a>>>,
    /// Source files and lines, which only gpuprobe's recordings have.
    sources: Option<RefCell<Statement<'a>>>,
    /// Offset from a `callchainId` to the id of the chain.
    offset: i64,
    cached_strings: RefCell<HashMap<i64, Rc<str>>>,
    cached_stacks: RefCell<HashMap<i64, Stack>>,
}

impl<'a> Resolver<'a> {
    /// Creates a resolver for `database`.
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

    /// The string with this id; the id in brackets if there is none.
    pub fn string(&self, id: i64) -> Rc<str> {
        cached(&self.cached_strings, id, || match self.read_string(id) {
            Ok(Some(text)) => text.into(),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::TooBig) => TOO_LONG.into(),
            Ok(None) | Err(_) => format!("[{id}]").into(),
        })
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

    /// The call stack of a `callchainId`, innermost frame first; empty if there is none.
    pub fn stack(&self, chain: i64) -> Stack {
        cached(&self.cached_stacks, chain, || {
            let read = self.read_stack(chain);
            let read = read.inspect_err(|error| tracing::debug!("call stack {chain}: {error}"));
            read.unwrap_or_default().into()
        })
    }

    fn read_stack(&self, chain: i64) -> rusqlite::Result<Vec<ChainFrame>> {
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
            frames.push(ChainFrame {
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

    fn read_sources(&self, chain: i64, frames: &mut [ChainFrame]) -> rusqlite::Result<()> {
        let Some(sources) = &self.sources else {
            return Ok(());
        };
        let mut sources = sources.borrow_mut();
        let mut rows = sources.query([chain])?;
        while let Some(found) = rows.next()? {
            let depth = row::integer(found, 0).and_then(|depth| usize::try_from(depth).ok());
            // `depth` is the index of the row, from 0.
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

/// The value of this id, which `read` gives if it is not cached.
fn cached<T: ?Sized>(
    cache: &RefCell<HashMap<i64, Rc<T>>>,
    id: i64,
    read: impl FnOnce() -> Rc<T>,
) -> Rc<T> {
    if let Some(known) = cache.borrow().get(&id) {
        return Rc::clone(known);
    }
    let found = read();
    let mut cache = cache.borrow_mut();
    if cache.len() >= MAX_CACHED {
        cache.clear();
    }
    cache.insert(id, Rc::clone(&found));
    found
}

/// Language of a frame; older recordings mark Python only by its file names.
fn language_of(name: Option<&str>, file: Option<&str>) -> Language {
    let is_python = match name {
        Some(name) => name == Language::Python.name(),
        None => file.is_some_and(|file| file.ends_with(".py")),
    };
    if is_python {
        Language::Python
    } else {
        Language::Native
    }
}

/// Reads the offset of chain ids: exports of 2021 and 2022 number chains from 1 but refer to them
/// from 0.
fn chain_offset(database: &Database) -> Result<i64> {
    let table = "CUDA_CALLCHAINS";
    let first = database.limit(table, "id", "ASC")?;
    if database.is_ours() || matches!(first, None | Some(0)) {
        return Ok(0);
    }
    let last = database.limit(table, "id", "DESC")?;
    let mut referred = (i64::MAX, i64::MIN);
    let calls = "CUPTI_ACTIVITY_KIND_RUNTIME";
    let backtraces = "WHERE eventClass = 67 AND callchainId IS NOT NULL";
    database.each(calls, &["callchainId", "eventClass"], backtraces, |found| {
        if let Some(id) = row::integer(found, 0) {
            referred = (referred.0.min(id), referred.1.max(id));
        }
    })?;
    let shifted = referred.0 == 0 && last == referred.1.checked_add(1);
    Ok(i64::from(shifted))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
