//! Text that is cut to the columns of a terminal.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use gpuprobe_model::text::{char_width, width};

use super::simplify;

/// Replaces the omitted characters: one column.
const MARK: &str = "…";
const MARK_WIDTH: usize = 1;
/// Minimum of columns kept before the arguments.
const LEAST_HEAD: usize = 6;

/// Simplifies `names`, which are shown together, and cuts them to at most `columns`. Where different
/// ones become equal, the second gets ` #2`, the next ` #3`. The names must be printable.
pub fn fit(names: &[&str], columns: usize) -> Vec<String> {
    fit_by(names, columns, simplify)
}

/// The same of other text, which is not simplified.
pub(crate) fn fit_text(texts: &[&str], columns: usize) -> Vec<String> {
    fit_by(texts, columns, str::to_owned)
}

fn fit_by(names: &[&str], columns: usize, simplify: fn(&str) -> String) -> Vec<String> {
    let mut shown: HashMap<&str, String> = HashMap::new();
    let mut taken = HashSet::new();
    let mut numbers: HashMap<String, usize> = HashMap::new();
    for &name in names {
        if shown.contains_key(name) {
            continue;
        }
        let simple = simplify(name);
        let mut text = cut(&simple, columns);
        let number = numbers.entry(text.clone()).or_insert(1);
        while !taken.insert(text.clone()) {
            *number += 1;
            let suffix = format!(" #{number}");
            let Some(room) = columns.checked_sub(suffix.len()) else {
                break;
            };
            text = cut(&simple, room) + &suffix;
        }
        shown.insert(name, text);
    }
    names.iter().map(|name| shown[name].clone()).collect()
}

/// `text` in at most `columns`, without its middle; text in angle brackets is kept if possible.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let Some(room) = columns.checked_sub(MARK_WIDTH) else {
        return String::new();
    };
    let arguments = text.find('<').map(|at| width(&text[at..]));
    let tail = match arguments {
        Some(tail) if tail + LEAST_HEAD <= room => tail,
        // The first of many arguments say more than the last.
        Some(_) => room / 3,
        None => room / 2,
    };
    let gap = gap(text, room - tail, tail);
    [&text[..gap.start], MARK, &text[gap.end..]].concat()
}

/// The bytes of `text` to omit so that at most `head` columns are left before and `tail` after them.
/// No number is cut: it stays whole, or goes.
fn gap(text: &str, head: usize, tail: usize) -> Range<usize> {
    let mut end = text.len() - after(text, tail).len();
    let mut head = head;
    let number = number_around(text, end);
    if number.start < end && end < number.end {
        let more = end - number.start;
        // A line number at the end says more than the characters in front.
        if more < head {
            (end, head) = (number.start, head - more);
        } else {
            end = number.end;
        }
    }
    let begin = before(text, head).len().min(end);
    let number = number_around(text, begin);
    match number.start < begin && begin < number.end {
        true => number.start..end,
        false => begin..end,
    }
}

/// The digits around a position, which are a byte each; empty if there are none.
fn number_around(text: &str, at: usize) -> Range<usize> {
    let is_digit = |byte: &&u8| byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let before = bytes[..at].iter().rev().take_while(is_digit).count();
    let after = bytes[at..].iter().take_while(is_digit).count();
    at - before..at + after
}

/// The first characters of `text` that take at most so many columns.
fn before(text: &str, columns: usize) -> &str {
    let mut left = columns;
    let past = text.char_indices().find(|(_, c)| {
        let width = char_width(*c);
        let fits = width <= left;
        left = left.saturating_sub(width);
        !fits
    });
    past.map_or(text, |(at, _)| &text[..at])
}

/// The last ones, which begin with none that combines with one before.
fn after(text: &str, columns: usize) -> &str {
    let mut left = columns;
    let mut from = text.len();
    for (at, c) in text.char_indices().rev() {
        let width = char_width(c);
        if width > left {
            break;
        }
        left -= width;
        if width > 0 {
            from = at;
        }
    }
    &text[from..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_not_cut() {
        assert_eq!(cut("train.py:4123", 12), "train.…:4123");
        assert_eq!(cut("train.py:4123", 7), "tr…4123");
        assert_eq!(cut("train.py:4123", 5), "tr…");
        assert_eq!(cut("sgemm_128x64_tn", 9), "sge…64_tn");
        assert_eq!(cut("plain", 5), "plain");
        assert_eq!(cut("plain", 0), "");
    }

    #[test]
    fn columns_are_counted_not_characters() {
        assert_eq!(cut("線線線線", 5), "線…線");
        assert_eq!(cut("線線線線", 4), "線…");
        assert_eq!(cut("ae\u{301}b\u{301}cd", 3), "a…d");
        assert_eq!(cut("abe\u{301}", 2), "a…");
    }

    proptest! {
        #[test]
        fn a_text_fits_and_no_number_is_cut(
            text in "[a-z./]{0,9}([0-9]{1,6}[線\u{301}a-z:]{1,8}){0,6}",
            columns in 0_usize..60,
        ) {
            let made = cut(&text, columns);
            prop_assert!(width(&made) <= columns, "{}", made);
            let numbers = |text: &str| -> Vec<String> {
                let parts = text.split(|c: char| !c.is_ascii_digit());
                parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
            };
            let all = numbers(&text);
            for number in numbers(&made) {
                prop_assert!(all.contains(&number), "{} in {}", number, made);
            }
        }
    }
}
