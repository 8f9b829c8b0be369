//! Strings and call stacks of a file, loaded on demand.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::Result;
use rusqlite::{ErrorCode, OptionalExtension, Statement};

use super::{Database, row};
use crate::memory_rows::CALLS;
use gpuprobe_model::stack::{Frame, Language};

/// Maximum number of frames that are read of a call stack.
const MAX_FRAMES: usize = 1024;
/// Maximum number of characters that are kept of a string.
const MAX_CHARACTERS: usize = 4096;
/// Maximum number of cached strings and stacks; others are read again.
const MAX_CACHED: usize = 1 << 14;

/// Placeholder for a string beyond SQLite's limit.
const TOO_LONG: &str = "[too long]";

/// Module name of a Python pseudo frame without a file, which says what is missing in the stack.
const PYTHON: &str = "[python]";

const CHAINS: &str = "CUDA_CALLCHAINS";
/// Source files and lines, which only gpuprobe's recordings have.
const FRAMES: &str = "GPUPROBE_FRAMES";

/// Module of a frame in the tables; for Python, the source file or a placeholder.
pub fn module_of(frame: &Frame) -> &str {
    match (frame.module.as_str(), &frame.file) {
        ("", Some(file)) => file,
        ("", None) => PYTHON,
        (module, _) => module,
    }
}

/// Loads strings and call stacks of a [`Database`].
pub struct Resolver<'a> {
    strings: Option<RefCell<Statement<'a>>>,
    chains: Option<RefCell<Statement<'a>>>,
    /// Offset from a `callchainId` to the id of the chain.
    offset: i64,
    cached_strings: RefCell<HashMap<i64, Arc<str>>>,
    cached_stacks: RefCell<HashMap<i64, Rc<[Frame]>>>,
}

impl<'a> Resolver<'a> {
    /// Creates a resolver for `database`.
    pub fn new(database: &'a Database) -> Result<Self> {
        let strings = database.select("StringIds", "value", "WHERE id = ?1")?;
        let columns = database.columns(CHAINS, "symbol, module, originalIP");
        let places = "file, line, isInlined, language, source";
        let places = database.columns(FRAMES, places);
        let join = match database.has_table(FRAMES) {
            true => format!("LEFT JOIN {FRAMES} ON chain = id AND depth = stackDepth"),
            false => String::new(),
        };
        let columns = format!("{columns}, {places}");
        let rest = format!("{join} WHERE id = ?1 ORDER BY stackDepth LIMIT {MAX_FRAMES}");
        let chains = database.select_sql(CHAINS, &columns, &rest)?;
        Ok(Self {
            strings: strings.map(RefCell::new),
            chains: chains.map(RefCell::new),
            offset: chain_offset(database)?,
            cached_strings: RefCell::default(),
            cached_stacks: RefCell::default(),
        })
    }

    /// The string with this id; the id in brackets if there is none.
    pub fn string(&self, id: i64) -> Arc<str> {
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
        let text = strings.query_row([id], |found| Ok(row::text(found, 0)));
        let mut text = text.optional()?.flatten();
        if let Some(text) = &mut text
            && let Some((end, _)) = text.char_indices().nth(MAX_CHARACTERS)
        {
            text.replace_range(end.., "...");
        }
        Ok(text)
    }

    /// The call stack of a `callchainId`, innermost frame first; empty if there is none.
    pub fn stack(&self, chain: i64) -> Rc<[Frame]> {
        cached(&self.cached_stacks, chain, || {
            let read = self.read_stack(chain);
            let read = read.inspect_err(|error| tracing::debug!("call stack {chain}: {error}"));
            read.unwrap_or_default().into()
        })
    }

    fn read_stack(&self, chain: i64) -> rusqlite::Result<Vec<Frame>> {
        let mut frames = Vec::new();
        let Some(chains) = &self.chains else {
            return Ok(frames);
        };
        let mut chains = chains.borrow_mut();
        let mut rows = chains.query([chain.saturating_add(self.offset)])?;
        while let Some(found) = rows.next()? {
            let number = |column| row::integer(found, column);
            let text = |column| number(column).map(|id| self.string(id).to_string());
            let address = number(2).unwrap_or(0);
            let file = text(3);
            let language = language_of(text(6).as_deref(), file.as_deref());
            let mut module = text(1).unwrap_or_else(|| "[unknown]".to_owned());
            if language.is_python() && (file.as_ref() == Some(&module) || module == PYTHON) {
                module.clear();
            }
            frames.push(Frame {
                function: text(0).unwrap_or_else(|| format!("{address:#x}")),
                line: number(4).and_then(|line| u32::try_from(line).ok()),
                source: text(7),
                module,
                address: address.cast_unsigned(),
                inlined: number(5).is_some_and(|flag| flag != 0),
                language,
                file,
            });
        }
        Ok(frames)
    }
}

/// The value of this id, which `read` gives if it is not cached.
fn cached<T: Clone>(cache: &RefCell<HashMap<i64, T>>, id: i64, read: impl FnOnce() -> T) -> T {
    let mut cache = cache.borrow_mut();
    if cache.len() >= MAX_CACHED && !cache.contains_key(&id) {
        cache.clear();
    }
    cache.entry(id).or_insert_with(read).clone()
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

/// The offset of chain ids: exports of 2021 and 2022 number chains from 1 but refer to them from 0.
fn chain_offset(database: &Database) -> Result<i64> {
    let mut refers_to_0 = false;
    if !database.is_ours() && database.limit(CHAINS, "id", "ASC")? == Some(1) {
        let first = "WHERE callchainId = 0 AND eventClass = 67 LIMIT 1";
        let columns = "callchainId, eventClass";
        database.each(CALLS, columns, first, |_| refers_to_0 = true)?;
    }
    Ok(i64::from(refers_to_0))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
