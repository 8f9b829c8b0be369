//! What commands print, byte for byte: `tests/data/text/*.txt` have commands, each behind `$`, with their output.
//! After an intended change, `GPUPROBE_WRITE_GOLDEN=1 cargo test --test recordings texts` writes the outputs again;
//! review them. A new command is a new line with `$`.
//!
//! Commands run in a shell, in a folder with the recordings that the file names; `$ROOT` is the repository. Lines of
//! standard error begin with `!`. `COMMAND | /a/*/b` prints values of JSON, `sqlite3 FILE SQL` runs statements. `//`
//! begins a comment.

use std::collections::HashSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use rusqlite::Connection;
use rusqlite::types::ValueRef;
use serde_json::{Deserializer, Value};

use crate::bad::OLD;
use crate::scene::{KERNELS, SCENES};
use crate::validator::check;
use crate::{Folder, snapshots};

/// Recordings of `tests/snapshots` with lines that the scenes lack: kinds of memory, pools, names, losses, failures,
/// graphs, single copies.
const RECORDED: [&str; 11] = [
    "two_traced_processes_share_memory",
    "every_kind_is_exact_for_every_backend",
    "used_and_reserved_are_different_numbers",
    "processes_with_different_device_numbers_add_up_by_gpu",
    "memory_belongs_to_the_requesting_library",
    "threads_are_distinguished_by_tid_and_name",
    "launch_functions_of_each_layer_are_distinguished",
    "a_graph_of_5_kernels_launched_23_times_is_23_graph_launches",
    "copies_that_return_early_have_no_throughput",
    "copy_batches_of_unknown_size_are_counted_as_lost",
    "text_shows_failed_copies",
];

/// A folder with the files that `script` names.
fn files(script: &str) -> Folder {
    let folder = Folder::new();
    let names = |name: &str| script.contains(&format!("{name}.sqlite"));
    for (name, _) in SCENES.iter().filter(|(name, _)| names(name)) {
        folder.scene(name);
    }
    for name in RECORDED {
        if names(name) {
            let path = folder.path(name).with_extension("sqlite");
            fs::copy(snapshots::recording(name), path).unwrap();
        }
    }
    if names("old") {
        fs::rename(folder.database(OLD), folder.path("old.sqlite")).unwrap();
    }
    folder.real_export();
    folder
}

/// Rows of a query, or nothing of other statements.
fn query(folder: &Folder, file: &str, sql: &str) -> String {
    let connection = Connection::open(folder.path(file)).unwrap();
    if !sql.starts_with("SELECT") {
        connection.execute_batch(sql).unwrap();
        return String::new();
    }
    let mut statement = connection.prepare(sql).unwrap();
    let columns = statement.column_count();
    let mut rows = statement.query([]).unwrap();
    let mut found = String::new();
    while let Some(row) = rows.next().unwrap() {
        let cells = (0..columns).map(|column| match row.get_ref(column).unwrap() {
            ValueRef::Null => "NULL".to_owned(),
            ValueRef::Integer(number) => number.to_string(),
            ValueRef::Real(number) => number.to_string(),
            ValueRef::Text(text) | ValueRef::Blob(text) => String::from_utf8_lossy(text).into(),
        });
        writeln!(found, "{}", cells.collect::<Vec<_>>().join("|")).unwrap();
    }
    found
}

/// The values at `path`, in which `*` is each element.
fn values(document: &Value, path: &[&str]) -> Vec<Value> {
    let Some((key, rest)) = path.split_first() else {
        return vec![document.clone()];
    };
    match document {
        Value::Array(all) if *key == "*" => all.iter().flat_map(|one| values(one, rest)).collect(),
        Value::Array(all) => values(&all[key.parse::<usize>().unwrap()], rest),
        other => values(other.get(key).unwrap_or(&Value::Null), rest),
    }
}

/// The values at `pointers` of each document.
fn pick(written: &str, pointers: &str) -> String {
    let mut found = String::new();
    for document in Deserializer::from_str(written).into_iter() {
        let document = document.unwrap();
        check(&document);
        for pointer in pointers.split(' ') {
            let path: Vec<_> = pointer.split('/').skip(1).collect();
            let values = values(&document, &path);
            let values = values.iter().map(Value::to_string).collect::<Vec<_>>();
            writeln!(found, "{pointer}: {}", values.join(" ")).unwrap();
        }
    }
    found
}

/// The output of a command.
fn run(folder: &Folder, command: &str, columns: Option<usize>) -> String {
    if let Some(rest) = command.strip_prefix("sqlite3 ") {
        let (file, sql) = rest.split_once(' ').unwrap();
        return query(folder, file, sql);
    }
    let (command, pointers) = match command.split_once(" | /") {
        Some((command, pointers)) => (command, Some(format!("/{pointers}"))),
        None => (command, None),
    };
    let binaries = Path::new(env!("CARGO_BIN_EXE_gpuprobe")).parent().unwrap();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .current_dir(folder.path(""))
        .env("PATH", path)
        .env("ROOT", env!("CARGO_MANIFEST_DIR"))
        .env("LC_ALL", "C.UTF-8")
        .env_remove("COLUMNS")
        .env_remove("GPUPROBE_LOG");
    if let Some(columns) = columns {
        shell.env("COLUMNS", columns.to_string());
    }
    let output = shell.output().unwrap();
    let mut shown = String::from_utf8(output.stdout).unwrap();
    if let Some(pointers) = pointers {
        shown = pick(&shown, &pointers);
    }
    if !shown.is_empty() && !shown.ends_with('\n') {
        shown += "\n";
    }
    for line in String::from_utf8(output.stderr).unwrap().lines() {
        writeln!(shown, "! {line}").unwrap();
    }
    if !output.status.success() {
        writeln!(shown, "[{}]", output.status).unwrap();
    }
    shown.replace(env!("CARGO_PKG_VERSION"), "VERSION")
}

/// Compares the outputs with those in the file `name`, which has the commands of the file `script`.
fn compare(script: &str, name: &str, columns: Option<usize>) -> String {
    let texts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/text");
    let commands = fs::read_to_string(texts.join(script)).unwrap();
    let folder = files(&commands);
    let mut all = String::new();
    for line in commands.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            writeln!(all, "{line}\n{}", run(&folder, command, columns)).unwrap();
        } else if line.starts_with("// ") {
            writeln!(all, "{line}").unwrap();
        }
    }
    let path = texts.join(name);
    if std::env::var_os("GPUPROBE_WRITE_GOLDEN").is_some() {
        fs::write(&path, &all).unwrap();
    }
    let known = fs::read_to_string(&path).unwrap();
    for (number, (known, made)) in known.lines().zip(all.lines()).enumerate() {
        assert_eq!(made, known, "{}:{}", path.display(), number + 1);
    }
    assert_eq!(all.len(), known.len(), "{}", path.display());
    all
}

#[test]
fn replays_match_their_golden_file() {
    compare("replays.txt", "replays.txt", None);
}

#[test]
fn tables_match_their_golden_file() {
    compare("tables.txt", "tables.txt", None);
}

#[test]
fn tables_of_exports_match_sql() {
    compare("sql.txt", "sql.txt", None);
}

#[test]
fn exports_match_their_golden_file() {
    compare("exports.txt", "exports.txt", None);
}

#[test]
fn files_match_their_golden_file() {
    compare("files.txt", "files.txt", None);
}

#[test]
fn verdicts_match_their_golden_file() {
    compare("verdicts.txt", "verdicts.txt", None);
}

#[test]
fn plots_and_profiles_match_their_golden_file() {
    compare("plots.txt", "plots.txt", None);
}

#[test]
fn snapshots_match_their_golden_file() {
    compare("torch.txt", "torch.txt", None);
}

#[test]
fn pages_match_their_golden_file() {
    compare("piped.txt", "piped.txt", None);
}

#[test]
fn recorded_runs_match_their_golden_file() {
    compare("recorded.txt", "recorded.txt", None);
}

/// The output in `all` of the command.
fn section<'a>(all: &'a str, command: &str) -> &'a str {
    let begins = format!("$ gpuprobe {command}\n");
    let (_, rest) = all.split_once(&begins).unwrap();
    rest.split("\n$ ").next().unwrap()
}

/// The cells of the last column of the table that begins with `heading`.
fn last_column<'a>(text: &'a str, heading: &str) -> Vec<&'a str> {
    let mut lines = text.lines().skip_while(|line| !line.ends_with(heading));
    let begin = lines.next().unwrap().find(heading).unwrap();
    let rows = lines.take_while(|line| {
        line.chars().count() > begin && line.trim_start().starts_with(|c: char| c.is_ascii_digit())
    });
    rows.map(|line| &line[line.char_indices().nth(begin).unwrap().0..])
        .collect()
}

/// The same at a width, at which no line is longer.
fn pages_at(columns: usize) -> String {
    let all = compare("piped.txt", &format!("{columns}.txt"), Some(columns));
    for line in all.lines().filter(|line| !line.starts_with("$ ")) {
        assert!(line.chars().count() <= columns, "{columns}: {line}");
    }
    all
}

#[test]
fn pages_at_80_columns_match_their_golden_file() {
    let all = pages_at(80);
    // No two rows look the same.
    for (command, heading, count) in [
        ("replay training.sqlite", "WHERE", 8),
        ("replay launches.sqlite --last", "KERNEL", KERNELS.len()),
        ("replay activity.sqlite --last", "KERNEL", KERNELS.len()),
        (
            "report activity.sqlite --analysis kernels",
            "KERNEL",
            KERNELS.len(),
        ),
    ] {
        let rows = last_column(section(&all, command), heading);
        let different: HashSet<_> = rows.iter().collect();
        assert_eq!((rows.len(), different.len()), (count, count), "{rows:?}");
    }
}

#[test]
fn pages_at_120_columns_match_their_golden_file() {
    let _ = pages_at(120);
}

#[test]
fn pages_at_200_columns_match_their_golden_file() {
    let _ = pages_at(200);
}
