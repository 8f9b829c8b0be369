//! Labels of series.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

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

/// Labels of a [`LabelPool`], which are compared without looking at them.
#[derive(Clone, Debug)]
pub(super) struct SharedLabels(Rc<Labels>);

impl PartialEq for SharedLabels {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SharedLabels {}

impl Hash for SharedLabels {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Rc::as_ptr(&self.0).hash(state);
    }
}

impl SharedLabels {
    /// The labels.
    pub(super) fn get(&self) -> &Labels {
        &self.0
    }
}

/// Labels that are in use, each set once.
#[derive(Debug, Default)]
pub(super) struct LabelPool {
    known: HashSet<Rc<Labels>>,
    /// Number of sets at which unused ones are looked for.
    full: usize,
}

impl LabelPool {
    /// Fewer sets than this are kept, used or not.
    const FEW: usize = 1024;

    /// The set of the pool that equals `labels`.
    pub(super) fn shared(&mut self, labels: Labels) -> SharedLabels {
        if let Some(known) = self.known.get(&labels) {
            return SharedLabels(Rc::clone(known));
        }
        if self.known.len() >= self.full.max(Self::FEW) {
            self.known.retain(|labels| Rc::strong_count(labels) > 1);
            self.full = 2 * self.known.len();
        }
        let labels = Rc::new(labels);
        self.known.insert(Rc::clone(&labels));
        SharedLabels(labels)
    }
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
    fn equal_labels_are_one_and_unused_ones_go() {
        let mut pool = LabelPool::default();
        let labels = |number: usize| vec![("pid", number.to_string())];
        let kept = pool.shared(labels(7));
        assert!(kept == pool.shared(labels(7)) && kept != pool.shared(labels(8)));
        for number in 0..100_000 {
            pool.shared(labels(number));
            assert!(pool.known.len() <= LabelPool::FEW);
        }
        assert!(kept == pool.shared(labels(7)));
        assert_eq!(kept.get(), &labels(7));
        // Used ones stay, however many these are.
        let all: Vec<_> = (0..5000)
            .map(|number| pool.shared(labels(number)))
            .collect();
        assert_eq!(
            all,
            (0..5000)
                .map(|number| pool.shared(labels(number)))
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn values_are_of_limited_length() {
        let long = "線".repeat(1000);
        assert_eq!(clean(&long).chars().count(), MAX_CHARACTERS + 1);
        assert_eq!(clean("short"), "short");
    }
}
