//! Tests of confined helpers. This executable is also the helper, so it has its own
//! `main`. Root is not needed.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::print_stdout)]

#[path = "../stacks/harness/mod.rs"]
#[allow(dead_code, unused_imports)]
mod harness;
mod limits;
mod links;

use std::panic::catch_unwind;
use std::process::ExitCode;

use gpuprobe_stacks::helper::HelperHost;
use gpuprobe_stacks::program::serve_if_asked;

/// Where the readers run in these tests.
const PLACE: HelperHost = HelperHost::Process;

/// The tests, by name.
const TESTS: [(&str, fn()); 6] = [
    (
        "links::links_to_devices_are_not_followed",
        links::links_to_devices_are_not_followed,
    ),
    (
        "links::what_files_have_in_common_is_read",
        links::what_files_have_in_common_is_read,
    ),
    (
        "limits::a_file_that_ends_its_reader_is_bad",
        limits::a_file_that_ends_its_reader_is_bad,
    ),
    (
        "limits::a_file_that_takes_too_long_is_bad",
        limits::a_file_that_takes_too_long_is_bad,
    ),
    (
        "limits::parsers_may_do_nothing_else",
        limits::parsers_may_do_nothing_else,
    ),
    (
        "limits::a_parser_that_is_killed_is_replaced",
        limits::a_parser_that_is_killed_is_replaced,
    ),
];

fn main() -> ExitCode {
    if let Some(status) = serve_if_asked() {
        return status;
    }
    let words: Vec<_> = std::env::args().skip(1).collect();
    let filters: Vec<_> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let is_wanted =
        |name: &str| filters.is_empty() || filters.iter().any(|part| name.contains(*part));
    let mut failed = 0;
    for (name, test) in TESTS.into_iter().filter(|(name, _)| is_wanted(name)) {
        let is_listed = words.iter().any(|word| word == "--list");
        if is_listed {
            println!("{name}: test");
            continue;
        }
        let outcome = if catch_unwind(test).is_ok() {
            "ok"
        } else {
            "FAILED"
        };
        failed += usize::from(outcome != "ok");
        println!("test {name} ... {outcome}");
    }
    ExitCode::from(u8::from(failed > 0))
}
