//! Formatting of numbers and names.

use humansize::{BINARY, FormatSizeOptions, format_size};
use serde::Serializer;

/// Formats bytes in binary units, with two decimals from KiB on.
pub fn size(bytes: u64) -> String {
    let decimals = if bytes < 1024 { 0 } else { 2 };
    let options = FormatSizeOptions::from(BINARY)
        .decimal_places(decimals)
        .decimal_zeroes(decimals);
    format_size(bytes, options)
}

/// Escapes control characters, line separators and bidirectional controls: a traced program chooses
/// its names, and these must not control a terminal.
pub fn printable(name: &str) -> String {
    let obeyed = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}')
    };
    name.chars()
        .flat_map(|c| {
            let escaped = obeyed(c).then(|| c.escape_default());
            let plain = escaped.is_none().then_some(c);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

/// Serialises an address as `0x...`.
///
/// # Errors
/// Returns the error of `serializer`.
pub fn hex<S: Serializer>(address: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{address:#x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1024), "1.00 KiB");
        assert_eq!(size(20 * 1024 * 1024), "20.00 MiB");
        assert_eq!(size(1_288_490_188), "1.20 GiB");
    }

    #[test]
    fn control_characters_are_shown_not_sent() {
        assert_eq!(printable("a\u{1b}[31mb\n"), "a\\u{1b}[31mb\\n");
        assert_eq!(printable("pt_main 線"), "pt_main 線");
        assert_eq!(printable("a\u{202e}\u{2028}b"), "a\\u{202e}\\u{2028}b");
    }
}
