//! Databases that are written for tests.

use std::path::PathBuf;

use rusqlite::Connection;

use crate::Database;

/// A database file with the result of these statements, in a folder of its own.
pub(crate) fn file(sql: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.sqlite");
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch(sql).unwrap();
    (folder, path)
}

/// The same, opened.
pub(crate) fn database(sql: &str) -> Database {
    let (_folder, path) = file(&format!("CREATE TABLE StringIds (id, value); {sql}"));
    Database::open(&path).unwrap()
}
