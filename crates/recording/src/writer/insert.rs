//! Insertion of rows into tables that are created on first use.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, Params, Statement};

use super::schema;

/// Inserts rows into one table.
pub(super) struct Insert<'c> {
    connection: &'c Connection,
    table: &'static str,
    statement: Option<Statement<'c>>,
}

impl<'c> Insert<'c> {
    pub(super) fn into(connection: &'c Connection, table: &'static str) -> Self {
        Self {
            connection,
            table,
            statement: None,
        }
    }

    /// Inserts a row with values for all columns.
    pub(super) fn row(&mut self, values: impl Params) -> rusqlite::Result<()> {
        if self.statement.is_none() {
            self.statement = Some(self.prepare()?);
        }
        match &mut self.statement {
            Some(statement) => statement.execute(values).map(|_| ()),
            None => Ok(()),
        }
    }

    fn prepare(&self) -> rusqlite::Result<Statement<'c>> {
        let exists = "SELECT 1 FROM sqlite_master WHERE name = ?";
        let exists = self
            .connection
            .query_row(exists, [self.table], |_| Ok(()))
            .optional()?;
        let definition = schema::table(self.table);
        if let (None, Some(definition)) = (exists, definition) {
            self.connection.execute(&schema::create(definition), [])?;
        }
        let columns = definition.map_or(0, schema::columns);
        self.connection
            .prepare(&schema::insert(self.table, columns))
    }
}

/// The table of strings, without duplicates.
pub(super) struct Strings<'c> {
    insert: Insert<'c>,
    ids: HashMap<String, i64>,
}

impl<'c> Strings<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self {
            insert: Insert::into(connection, "StringIds"),
            ids: HashMap::new(),
        }
    }

    /// The id of `text`.
    pub(super) fn id(&mut self, text: &str) -> rusqlite::Result<i64> {
        if let Some(id) = self.ids.get(text) {
            return Ok(*id);
        }
        let id = i64::try_from(self.ids.len()).unwrap_or(i64::MAX);
        self.insert.row((id, text))?;
        self.ids.insert(text.to_owned(), id);
        Ok(id)
    }
}
