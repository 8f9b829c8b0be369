//! Names of kernels and functions for display: [`simplify`] and [`qualified`] for one name, [`fit`] for
//! a list of them, [`cut`] for other text.

mod scanner;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use gpuprobe_model::memo::NameMemo;
use gpuprobe_model::text::{char_width, width};

/// A demangled name of C++ or Rust without boilerplate: result and parameters of functions, ABI
/// tags, namespaces, deep template arguments. A lambda keeps its enclosing function, a method its
/// class. Other text is unchanged.
pub fn simplify(name: &str) -> String {
    thread_local! {
        static SIMPLE: RefCell<NameMemo> = RefCell::default();
    }
    SIMPLE.with_borrow_mut(|memo| memo.get(name, |name| scanner::scan(name, false)))
}

/// The same with all namespaces, which show the origin of a function that stands alone.
pub fn qualified(name: &str) -> String {
    scanner::scan(name, true)
}

/// Minimum of columns kept before the arguments.
const LEAST_HEAD: usize = 6;

/// Simplifies `names`, which are shown together, and cuts them to at most `columns`. Where different
/// ones become equal, the second gets ` #2`, the next ` #3`. The names must be printable.
pub fn fit(names: &[&str], columns: usize, simplify: impl Fn(&str) -> String) -> Vec<String> {
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

/// `text` in at most `columns`, without its middle; text in angle brackets is kept if possible. No number is cut: it
/// stays whole, or goes.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let Some(room) = columns.checked_sub(1) else {
        return String::new();
    };
    let arguments = text.find('<').map(|at| width(&text[at..]));
    let tail = match arguments {
        Some(tail) if tail + LEAST_HEAD <= room => tail,
        // The first of many arguments say more than the last.
        Some(_) => room / 3,
        None => room / 2,
    };
    let is_digit = |c: char| c.is_ascii_digit();
    let (mut head, mut end) = (room - tail, last(text, tail));
    let digits = end - text[..end].trim_end_matches(is_digit).len();
    if digits > 0 && text[end..].starts_with(is_digit) {
        // A line number at the end says more than the characters in front.
        if digits < head {
            (end, head) = (end - digits, head - digits);
        } else {
            end = text.len() - text[end..].trim_start_matches(is_digit).len();
        }
    }
    let mut before = first(&text[..end], head);
    if text[before.len()..].starts_with(is_digit) {
        before = before.trim_end_matches(is_digit);
    }
    [before, "…", &text[end..]].concat()
}

/// The first characters of `text` that take at most so many columns.
fn first(text: &str, mut columns: usize) -> &str {
    let past = text.char_indices().find(|(_, c)| !take(&mut columns, *c));
    past.map_or(text, |(at, _)| &text[..at])
}

/// Where the last ones begin, with none that combines with one before.
fn last(text: &str, mut columns: usize) -> usize {
    let fitting = text.char_indices().rev();
    let fitting = fitting.take_while(|(_, c)| take(&mut columns, *c));
    let begins = fitting.filter(|(_, c)| char_width(*c) > 0);
    begins.last().map_or(text.len(), |(at, _)| at)
}

/// Takes the columns of `c`, if there are so many.
fn take(columns: &mut usize, c: char) -> bool {
    let left = columns.checked_sub(char_width(c));
    *columns = left.unwrap_or(*columns);
    left.is_some()
}
