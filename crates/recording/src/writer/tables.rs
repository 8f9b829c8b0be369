//! Insertion of rows into tables that are created on first use.

use std::collections::HashMap;

use rusqlite::{Connection, Params, Statement};

use super::schema;

/// The tables of a recording.
pub(super) struct Tables<'c> {
    pub(super) connection: &'c Connection,
    inserts: HashMap<&'static str, Statement<'c>>,
    /// Ids in the table of strings.
    strings: HashMap<String, i64>,
}

impl<'c> Tables<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self {
            connection,
            inserts: HashMap::new(),
            strings: HashMap::new(),
        }
    }

    /// Creates a table, if it does not exist.
    pub(super) fn create(&self, table: &str) -> rusqlite::Result<()> {
        let sql = schema::create(table);
        sql.map_or(Ok(()), |sql| self.connection.execute_batch(&sql))
    }

    /// Inserts a row with values for all columns.
    pub(super) fn insert(
        &mut self,
        table: &'static str,
        values: impl Params,
    ) -> rusqlite::Result<()> {
        if let Some(insert) = self.inserts.get_mut(table) {
            return insert.execute(values).map(|_| ());
        }
        self.create(table)?;
        let insert = self.connection.prepare(&schema::insert(table))?;
        let insert = self.inserts.entry(table).or_insert(insert);
        insert.execute(values).map(|_| ())
    }

    /// Executes another statement.
    pub(super) fn execute(&self, sql: &str, values: impl Params) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }

    /// The id of `text` in the table of strings, which has each once.
    pub(super) fn string(&mut self, text: &str) -> rusqlite::Result<i64> {
        if let Some(id) = self.strings.get(text) {
            return Ok(*id);
        }
        let id = i64::try_from(self.strings.len()).unwrap_or(i64::MAX);
        self.insert("StringIds", (id, text))?;
        self.strings.insert(text.to_owned(), id);
        Ok(id)
    }
}
