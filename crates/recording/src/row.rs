//! Values of rows in untrusted files: any column may have any type.

use rusqlite::Row;
use rusqlite::types::ValueRef;

/// The integer in column `index`; `None` if it is NULL or not a number.
pub fn integer(row: &Row<'_>, index: usize) -> Option<i64> {
    match row.get_ref(index).ok()? {
        ValueRef::Integer(number) => Some(number),
        ValueRef::Real(number) => Some(number as i64),
        ValueRef::Text(text) => std::str::from_utf8(text).ok()?.trim().parse().ok(),
        ValueRef::Null | ValueRef::Blob(_) => None,
    }
}

/// The text in column `index`, with invalid UTF-8 replaced; `None` if it is NULL.
pub fn text(row: &Row<'_>, index: usize) -> Option<String> {
    match row.get_ref(index).ok()? {
        ValueRef::Text(text) | ValueRef::Blob(text) => {
            Some(String::from_utf8_lossy(text).into_owned())
        }
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Null => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::type_complexity)]
mod tests {
    use super::*;
    use rusqlite::Connection;

    #[test]
    fn values_of_any_type_are_numbers_or_texts_where_they_can_be() {
        let connection = Connection::open_in_memory().unwrap();
        let read = |value: &str| {
            let sql = format!("SELECT {value}");
            let both = |row: &Row<'_>| Ok((integer(row, 0), text(row, 0), integer(row, 1)));
            connection.query_row(&sql, [], both).unwrap()
        };
        for (value, number, shown) in [
            ("7", Some(7), Some("7")),
            ("-7.9", Some(-7), Some("-7.9")),
            ("' 12 '", Some(12), Some(" 12 ")),
            ("'twelve'", None, Some("twelve")),
            ("x'ff41'", None, Some("\u{fffd}A")),
            ("CAST(x'ff41' AS TEXT)", None, Some("\u{fffd}A")),
            ("NULL", None, None),
        ] {
            assert_eq!(
                read(value),
                (number, shown.map(str::to_owned), None),
                "{value}"
            );
        }
    }
}
