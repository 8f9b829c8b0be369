//! Demangling with a limit: a few bytes of a mangled name can expand to gigabytes.

use std::cell::RefCell;
use std::fmt;

use gpuprobe_model::memo::NameMemo;

use cpp_demangle::{DemangleOptions, Symbol};

/// Maximum length of a demangled kernel name; longer ones stay mangled.
const KERNEL_LIMIT: usize = 64 << 10;
/// Maximum length of a function name in bytes. Names of C++ templates reach some hundred thousand.
pub(crate) const NAME_LIMIT: usize = 4096;
/// Maximum length of a mangled name; demangling takes a multiple of it in memory.
const MANGLED_LIMIT: usize = 1 << 20;

/// A text that is not written any further once it is longer than its limit.
struct LimitedText {
    text: String,
    limit: usize,
}

impl fmt::Write for LimitedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text.push_str(text);
        let fits = self.text.len() <= self.limit;
        fits.then_some(()).ok_or(fmt::Error)
    }
}

/// The demangled name of a kernel. Names that are not mangled, or too long, are returned unchanged.
pub fn demangle(mangled: &str) -> String {
    thread_local! {
        static DEMANGLED: RefCell<NameMemo> = RefCell::default();
    }
    let made = |mangled: &str| {
        let name = cpp(mangled, KERNEL_LIMIT).filter(|name| name.len() <= KERNEL_LIMIT);
        name.unwrap_or_else(|| mangled.to_owned())
    };
    DEMANGLED.with_borrow_mut(|memo| memo.get(mangled, made))
}

/// The demangled name of a C, C++ or Rust function, shortened to at most `limit` bytes.
pub(crate) fn function_name(mangled: &str, limit: usize) -> String {
    let name = rust(mangled).or_else(|| cpp(mangled, limit));
    beginning(name.as_deref().unwrap_or(mangled), limit)
}

/// `text`, shortened to at most `limit` bytes, which are more than three.
pub(crate) fn beginning(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(limit.saturating_sub(3));
    format!("{}...", &text[..end])
}

/// The demangled name, or its beginning, if it is longer than `limit`.
fn cpp(mangled: &str, limit: usize) -> Option<String> {
    // Without a prefix, letters are types: a C function `f` would become `float`.
    let is_mangled = mangled.starts_with("_Z") || mangled.starts_with("__Z");
    let is_it = is_mangled && mangled.len() <= MANGLED_LIMIT;
    let symbol = Symbol::new(is_it.then_some(mangled)?).ok()?;
    let text = String::new();
    let mut name = LimitedText { text, limit };
    let written = symbol.structured_demangle(&mut name, &DemangleOptions::new());
    (written.is_ok() || name.text.len() > limit).then_some(name.text)
}

/// The demangled name, which the library limits to a megabyte.
fn rust(mangled: &str) -> Option<String> {
    let is_it = mangled.len() <= MANGLED_LIMIT;
    let symbol = rustc_demangle::try_demangle(is_it.then_some(mangled)?).ok()?;
    Some(format!("{symbol:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_names_are_demangled() {
        assert_eq!(
            demangle("_Z6vecAddPKfS0_Pfi"),
            "vecAdd(float const*, float const*, float*, int)"
        );
        assert_eq!(demangle("triton_poi_fused_add_0"), "triton_poi_fused_add_0");
        assert_eq!(demangle("_Znonsense"), "_Znonsense");
        assert_eq!(demangle("f"), "f");
    }

    #[test]
    fn function_names_are_demangled_in_all_languages() {
        for (mangled, name) in [
            ("_Z6vecAddPKf", "vecAdd(float const*)"),
            (
                "_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE",
                "core::fmt::Write::write_fmt",
            ),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("main", "main"),
            ("_Znonsense", "_Znonsense"),
            ("", ""),
        ] {
            assert_eq!(function_name(mangled, NAME_LIMIT), name);
        }
        let long = "é".repeat(NAME_LIMIT);
        let begins = "é".repeat((NAME_LIMIT - 3) / 2) + "...";
        assert_eq!(function_name(&long, NAME_LIMIT), begins);
        let fits = "x".repeat(NAME_LIMIT);
        assert_eq!(function_name(&fits, NAME_LIMIT), fits);
    }

    #[test]
    fn expanding_names_are_cut() {
        // Each pair contains the one before twice.
        let nested = |levels: usize| {
            let digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ".chars();
            let pairs = digits.take(levels).map(|n| format!("S_IS{n}_S{n}_E"));
            format!("_Z1fSt4pairIiiE{}", pairs.collect::<String>())
        };
        let small = demangle(&nested(2));
        assert!(
            small.starts_with("f(std::pair<int, int>, std::pair<"),
            "{small}"
        );
        let bomb = nested(30);
        assert_eq!(demangle(&bomb), bomb);
        let begins = function_name(&bomb, NAME_LIMIT);
        assert!(begins.starts_with("f(std::pair<int, int>, std::pair<"));
        assert!(begins.ends_with("...") && begins.len() == NAME_LIMIT);
        // Each tuple contains the one before twice, by a back reference in base 62.
        let digits: Vec<_> = ('0'..='9').chain('a'..='z').chain('A'..='Z').collect();
        let again = (0..30).map(|n| format!("B{}_E", digits[38 - n - 1]));
        let again: String = again.collect();
        let bomb = format!("_RINvC1a1f{}h{again}E", "T".repeat(30));
        let begins = function_name(&bomb, NAME_LIMIT);
        assert!(begins.starts_with("a::f::<((((") && begins.ends_with("..."));
        assert_eq!(begins.len(), NAME_LIMIT);
    }

    #[test]
    fn names_of_just_the_limit_are_whole() {
        for (mangled, name) in [
            ("_Z6vecAddPKf", "vecAdd(float const*)"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("a_long_function", "a_long_function"),
        ] {
            let shorter = format!("{}...", &name[..name.len() - 4]);
            assert_eq!(function_name(mangled, name.len()), name);
            assert_eq!(function_name(mangled, name.len() - 1), shorter);
        }
        let long = format!("_Z1f{}", "i".repeat(MANGLED_LIMIT));
        assert!(cpp(&long, 10).is_none() && rust(&long).is_none());
        assert!(cpp(&long[..100], 1000).is_some() && cpp("__Z1fi", 10).is_some());
        assert!(cpp("f", 10).is_none());
    }
}
