//! Exit statuses, for the long help and the man page. docs/exit-status.md has them for users.

use std::fmt::Write;

use clap_mangen::roff::{Roff, bold, roman};

/// Statuses, and what each of them means.
const STATUSES: [(&str, &str); 9] = [
    ("0", "success"),
    ("1", "an error"),
    ("2", "the command line is wrong"),
    (
        "3",
        "nothing could be traced, or the file has nothing of what was asked for",
    ),
    ("100", "--fail-on found a leak"),
    ("126", "COMMAND could not be started"),
    ("127", "COMMAND was not found"),
    (
        "N",
        "COMMAND ended with N, which is not 0; takes precedence over 3 and 100",
    ),
    ("128 + N", "signal N ended COMMAND"),
];

/// The statuses as the end of the long help.
pub(super) fn help() -> String {
    let width = STATUSES.iter().map(|(status, _)| status.len()).max();
    let width = width.unwrap_or(0);
    let mut help = "Exit status:".to_owned();
    for (status, meaning) in STATUSES {
        // Strings can always be written to.
        let _ = write!(help, "\n  {status:width$}  {meaning}");
    }
    help
}

/// The statuses as a section of a man page.
pub(super) fn section() -> Roff {
    let mut section = Roff::new();
    section.control("SH", ["EXIT STATUS"]);
    for (status, meaning) in STATUSES {
        section.control("TP", []);
        section.text([bold(status)]);
        section.text([roman(meaning)]);
    }
    section
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_document_has_the_same_statuses() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/exit-status.md");
        let document = fs::read_to_string(path).unwrap();
        let rows = document.lines().filter_map(|line| line.strip_prefix("| "));
        let first = rows.filter_map(|row| row.split(" | ").next());
        let statuses: Vec<_> = first.filter(|&word| word != "status").collect();
        assert_eq!(statuses, STATUSES.map(|(status, _)| status));
    }

    #[test]
    fn the_man_page_has_an_entry_for_each() {
        let page = section().render();
        assert!(page.contains(".SH \"EXIT STATUS\""), "{page}");
        for (status, meaning) in STATUSES {
            let entry = format!(".TP\n\\fB{status}\\fR\n{meaning}\n");
            assert!(page.replace("\\-", "-").contains(&entry), "{entry}: {page}");
        }
    }
}
