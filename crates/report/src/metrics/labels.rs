//! Labels of series.

use crate::public::without_addresses;
use gpuprobe_model::text::printable;

/// Names and values of the labels of a series, in order.
pub type Labels = Vec<(&'static str, String)>;

/// Value of labels where several series are summed.
pub(super) const OTHER: &str = "other";
/// Kernels and call sites without a name.
pub(super) const UNKNOWN: &str = "unknown";

/// Maximum number of characters of a label's value.
const MAX_CHARACTERS: usize = 160;

/// `text`, which a traced program may have chosen, as a label's value: without control characters, and of
/// limited length.
pub(super) fn clean(text: &str) -> String {
    let text = printable(text);
    match text.char_indices().nth(MAX_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// [`clean`], without addresses: offsets in a file remain.
pub(super) fn clean_name(text: &str) -> String {
    let kept = without_addresses(text);
    match kept.trim_matches(|c: char| c == '?' || c == '@' || c.is_whitespace()) {
        "" => UNKNOWN.to_owned(),
        _ => clean(&kept),
    }
}

/// `labels` and `more`.
pub(super) fn with(labels: &Labels, more: &Labels) -> Labels {
    labels.iter().chain(more).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_addresses() {
        for (name, cleaned) in [
            ("train.py:58 training_step", "train.py:58 training_step"),
            ("0x7f1234567890", UNKNOWN),
            ("0x401136", UNKNOWN),
            ("load.c:7 load @0x7f1234567890", "load.c:7 load @?"),
            ("app+0x1a3", "app+0x1a3"),
            ("[jit]+0x7f1234567890 < main", "[jit]+? < main"),
            ("half0xmas", "half0xmas"),
            ("", UNKNOWN),
            ("a\nb\u{202e}", "a\\nb\\u{202e}"),
        ] {
            assert_eq!(clean_name(name), cleaned, "{name}");
        }
    }

    #[test]
    fn values_are_of_limited_length() {
        let long = "線".repeat(1000);
        assert_eq!(clean(&long).chars().count(), MAX_CHARACTERS + 1);
        assert_eq!(clean("short"), "short");
    }
}
