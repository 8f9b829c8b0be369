//! Formatting of numbers and names.

use humansize::{BINARY, FormatSizeOptions, format_size};
use serde::Serializer;
use unicode_width::UnicodeWidthChar;

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

/// Columns of a terminal that `text` takes: two for a wide character, none for a combining one. No
/// terminal takes more; some take fewer for emoji of several characters.
pub fn width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

/// Columns of a single character.
pub fn char_width(c: char) -> usize {
    match c {
        // Selects the emoji of a character, which is wide where the character may be narrow.
        '\u{fe0f}' => 1,
        _ => c.width().unwrap_or(1),
    }
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
    fn columns_of_a_terminal() {
        assert_eq!(width("pt_main"), 7);
        assert_eq!(width("線線"), 4);
        assert_eq!(width("e\u{301}te\u{301}"), 3);
        assert_eq!(width("█░…"), 3);
        assert_eq!(width("\u{2600}\u{fe0f}"), 2);
    }

    #[test]
    fn control_characters_are_shown_not_sent() {
        assert_eq!(printable("a\u{1b}[31mb\n"), "a\\u{1b}[31mb\\n");
        assert_eq!(printable("pt_main 線"), "pt_main 線");
        assert_eq!(printable("a\u{202e}\u{2028}b"), "a\\u{202e}\\u{2028}b");
    }

    #[test]
    fn addresses_are_hexadecimal() {
        let json = hex(&0xabc, serde_json::value::Serializer).unwrap_or_default();
        assert_eq!(json, "0xabc");
        assert_eq!(
            ["\u{7}", "\u{200e}", "\u{2069}", "\u{2070}"].map(printable),
            ["\\u{7}", "\\u{200e}", "\\u{2069}", "\u{2070}"]
        );
        assert_eq!(
            [char_width('a'), char_width('\u{fe0f}'), char_width('\u{7}')],
            [1, 1, 1]
        );
    }
}
