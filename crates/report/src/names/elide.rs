//! Omission of characters, where omitting arguments is not enough.

use std::ops::Range;

use gpuprobe_model::text::{char_width, width};

/// Replaces the omitted characters: one column.
pub(crate) const MARK: &str = "…";
const MARK_WIDTH: usize = 1;
/// Minimum of columns kept before the arguments.
const LEAST_HEAD: usize = 6;

/// `text` in at most `columns`, without its middle; text in angle brackets is kept if possible.
pub(crate) fn middle(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let Some(room) = columns.checked_sub(MARK_WIDTH) else {
        return String::new();
    };
    let arguments = text.find('<').map(|at| width(&text[at..]));
    let tail = match arguments {
        Some(tail) if tail + LEAST_HEAD <= room => tail,
        _ => room / 2,
    };
    let gap = gap(text, room - tail, tail);
    [&text[..gap.start], MARK, &text[gap.end..]].concat()
}

/// The bytes of `text` to omit so that at most `head` columns are left before and `tail` after them.
/// No number is cut: it stays whole, or goes.
pub(crate) fn gap(text: &str, head: usize, tail: usize) -> Range<usize> {
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
pub(super) fn before(text: &str, columns: usize) -> &str {
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

/// `texts`, which are all different, in at most `columns`, shortened so that their differences stay
/// visible as far as there is room.
pub(super) fn windows(texts: &[&str], columns: usize) -> Vec<String> {
    let (shared, furthest) = differences(texts);
    let shown = texts
        .iter()
        .map(|text| window(text, columns, shared, furthest));
    shown.collect()
}

/// Length of the prefix common to all, and of the longest prefix common to two of them.
fn differences(texts: &[&str]) -> (usize, usize) {
    let mut sorted = texts.to_vec();
    sorted.sort_unstable();
    let pairs = sorted.windows(2).map(|pair| match pair {
        [a, b] => common(a, b),
        _ => 0,
    });
    pairs.fold((usize::MAX, 0), |(least, most), length| {
        (least.min(length), most.max(length))
    })
}

fn common(a: &str, b: &str) -> usize {
    let pairs = a.chars().zip(b.chars());
    pairs.take_while(|(a, b)| a == b).count()
}

/// The start of `text`, a window from `shared` to `furthest` characters at least, and its end.
fn window(text: &str, columns: usize, shared: usize, furthest: usize) -> String {
    let length = text.chars().count();
    let marks = 2 * MARK_WIDTH;
    if width(text) <= columns || columns <= marks || shared >= length {
        return middle(text, columns);
    }
    // The window begins with the word that differs, or shortly before it.
    let begin = word_before(text, shared);
    let needed = (furthest + 1).saturating_sub(begin);
    let room = columns - marks;
    let head = (room / 3).min(room.saturating_sub(needed)).min(begin);
    let (mut made, begin, room) = if begin <= head + MARK_WIDTH {
        (String::new(), 0, columns)
    } else {
        let mut made: String = text.chars().take(head).collect();
        made.push_str(MARK);
        (made, begin, columns - head - MARK_WIDTH)
    };
    let rest: String = text.chars().skip(begin).collect();
    let rest_length = length - begin;
    if rest_length <= room {
        made.push_str(&rest);
        // Wide characters take more than one column.
        return middle(&made, columns);
    }
    let room = room.saturating_sub(MARK_WIDTH);
    let needed = (furthest + 1).saturating_sub(begin);
    let front = needed.max(room.div_ceil(2)).min(room);
    made.extend(rest.chars().take(front));
    made.push_str(MARK);
    made.extend(rest.chars().skip(rest_length - (room - front)));
    middle(&made, columns)
}

/// Start of the word around the character at `at`, if it is near.
fn word_before(text: &str, at: usize) -> usize {
    const FAR: usize = 14;
    let from = at.saturating_sub(FAR);
    let part: Vec<char> = text.chars().skip(from).take(at - from).collect();
    let separator = |c: &char| !c.is_alphanumeric();
    match part.iter().rposition(separator) {
        Some(before) => from + before + 1,
        None if from == 0 => 0,
        None => at.saturating_sub(FAR / 4),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_not_cut() {
        assert_eq!(middle("train.py:4123", 12), "train.…:4123");
        assert_eq!(middle("train.py:4123", 7), "tr…4123");
        assert_eq!(middle("train.py:4123", 5), "tr…");
        assert_eq!(middle("sgemm_128x64_tn", 9), "sge…64_tn");
        assert_eq!(middle("plain", 5), "plain");
        assert_eq!(middle("plain", 0), "");
    }

    #[test]
    fn columns_are_counted_not_characters() {
        assert_eq!(middle("線線線線", 5), "線…線");
        assert_eq!(middle("線線線線", 4), "線…");
        assert_eq!(middle("ae\u{301}b\u{301}cd", 3), "a…d");
        assert_eq!(middle("abe\u{301}", 2), "a…");
    }

    proptest! {
        #[test]
        fn a_text_fits_and_no_number_is_cut(
            text in "[a-z./]{0,9}([0-9]{1,6}[線\u{301}a-z:]{1,8}){0,6}",
            columns in 0_usize..60,
        ) {
            let made = middle(&text, columns);
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
