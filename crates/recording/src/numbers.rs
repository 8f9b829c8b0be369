//! Numbers of a row in one value: to ask SQLite for the type and the value of each column takes
//! most of the time of reading, so a function in SQL packs the columns of tables with many rows.

use rusqlite::functions::FunctionFlags;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, Result, Row, Statement};

use crate::Database;
use crate::row::integer_of;

/// Name of the function in SQL. Its arguments, at most [`MAX`], are of any type.
const FUNCTION: &str = "gpuprobe_numbers";
/// Maximum number of columns: one per bit of the first byte.
const MAX: usize = u8::BITS as usize;
const BYTES: usize = size_of::<i64>();

/// The packed numbers: a byte with a bit for each that is there, then all of them.
struct Packed([u8; 1 + MAX * BYTES]);

impl ToSql for Packed {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Blob(&self.0)))
    }
}

/// Makes [`FUNCTION`] available to the queries of `connection`, but not to the file.
pub(crate) fn register(connection: &Connection) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_DIRECTONLY;
    connection.create_scalar_function(FUNCTION, -1, flags, |columns| {
        let mut packed = Packed([0; 1 + MAX * BYTES]);
        let (there, numbers) = packed.0.split_at_mut(1);
        let (numbers, _) = numbers.as_chunks_mut();
        for (index, place) in numbers.iter_mut().enumerate().take(columns.len()) {
            if let Some(number) = integer_of(columns.get_raw(index)) {
                there[0] |= 1 << index;
                *place = number.to_ne_bytes();
            }
        }
        Ok(packed)
    })
}

impl Database {
    /// Like [`Self::select`]; the first column has [`Numbers`] of the columns `numbers`, the others follow.
    pub(crate) fn select_numbers(
        &self,
        table: &str,
        numbers: &str,
        others: &[&str],
        rest: &str,
    ) -> anyhow::Result<Option<Statement<'_>>> {
        let numbers: Vec<_> = numbers.split(", ").collect();
        let mut columns = vec![format!("{FUNCTION}({})", self.columns(table, &numbers))];
        columns.extend(others.iter().map(|other| self.columns(table, &[other])));
        self.select_sql(table, &columns.join(", "), rest)
    }
}

/// The numbers of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers<'a> {
    there: u8,
    numbers: &'a [[u8; BYTES]],
}

impl<'a> Numbers<'a> {
    /// The numbers of a row whose first column is of [`FUNCTION`].
    pub(crate) fn of(row: &'a Row<'_>) -> Option<Self> {
        let packed = row.get_ref(0).ok()?.as_blob().ok()?;
        let (&there, numbers) = packed.split_first()?;
        let (numbers, _) = numbers.as_chunks();
        Some(Self { there, numbers })
    }

    /// The number in column `index` of the function; `None` if it is NULL or not a number.
    pub(crate) fn get(self, index: usize) -> Option<i64> {
        let number = self.numbers.get(index)?;
        (self.there >> index & 1 == 1).then(|| i64::from_ne_bytes(*number))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::row::integer;

    #[test]
    fn numbers_are_those_of_the_columns() {
        let connection = Connection::open_in_memory().unwrap();
        register(&connection).unwrap();
        let columns = "1, -9, NULL, '12 ', 'twelve', 7.9, x'01', 9223372036854775807";
        let sql = format!("SELECT {FUNCTION}({columns}), {columns}");
        let compare = |row: &Row<'_>| {
            let numbers = Numbers::of(row).unwrap();
            let packed: Vec<_> = (0..MAX).map(|index| numbers.get(index)).collect();
            let read: Vec<_> = (1..=MAX).map(|index| integer(row, index)).collect();
            assert_eq!(packed, read);
            assert_eq!((packed[3], packed[7]), (Some(12), Some(i64::MAX)));
            assert_eq!(numbers.get(MAX), None);
            Ok(())
        };
        connection.query_row(&sql, [], compare).unwrap();
    }

    #[test]
    fn a_row_of_other_columns_has_no_numbers() {
        let connection = Connection::open_in_memory().unwrap();
        for value in ["1", "NULL", "x''"] {
            let none = |row: &Row<'_>| Ok(Numbers::of(row).is_none());
            let sql = format!("SELECT {value}");
            assert!(connection.query_row(&sql, [], none).unwrap(), "{value}");
        }
    }
}
