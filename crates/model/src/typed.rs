//! Numbers as users type them: sizes, times, rows of a list. An error says what was expected.

use std::time::Duration;

/// A number of rows, or `all`: as many as there are.
///
/// # Errors
/// It is neither.
pub fn parse_top(text: &str) -> Result<usize, String> {
    match text {
        "all" => Ok(usize::MAX),
        _ => text
            .parse()
            .map_err(|_| format!("'{text}' is not a number of rows; try 20 or all")),
    }
}

/// Bytes, with a binary unit or without.
///
/// # Errors
/// It is no size, or too large.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size; try 4096, 64KiB or 2M");
    let (number, unit) = number_and_unit(text);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(wrong()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        let bytes = whole.checked_mul(1 << shift);
        return bytes.ok_or_else(|| format!("'{text}' is out of range"));
    }
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Ok((number * (1u64 << shift) as f64) as u64)
}

/// The digits that `text` begins with, and the rest without spaces around it.
fn number_and_unit(text: &str) -> (&str, &str) {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    (&text[..text.len() - unit.len()], unit.trim())
}

/// A century: clocks end later.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// A time from a millisecond to a century with a unit (`ms`, `s`, `m`, `h`); seconds without one.
///
/// # Errors
/// It is no such time.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    match parse_moment(text)? {
        duration if (Duration::from_millis(1)..=LONGEST).contains(&duration) => Ok(duration),
        _ => Err(format!("'{text}' is out of range")),
    }
}

/// The same, or no time at all: 0.
///
/// # Errors
/// It is no such time.
pub fn parse_duration_or_zero(text: &str) -> Result<Duration, String> {
    match parse_moment(text)? {
        Duration::ZERO => Ok(Duration::ZERO),
        _ => parse_duration(text),
    }
}

/// A time from the beginning of something, which may be 0, in `ns` and `us`, too.
///
/// # Errors
/// It is no time.
pub fn parse_moment(text: &str) -> Result<Duration, String> {
    let (number, unit) = number_and_unit(text);
    if let ("ns", Ok(ns)) = (unit, number.parse()) {
        return Ok(Duration::from_nanos(ns));
    }
    let number: f64 = number
        .parse()
        .map_err(|_| format!("'{text}' is not a time; try 500ms, 2s or 1m"))?;
    let seconds = match unit {
        "ns" => number / 1e9,
        "us" => number / 1e6,
        "ms" => number / 1e3,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        other => return Err(format!("unknown unit '{other}'; use ns, us, ms, s, m or h")),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("'{text}' is out of range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_rows() {
        assert_eq!(parse_top("all"), Ok(usize::MAX));
        assert_eq!(parse_top("3"), Ok(3));
        for bad in ["", "-1", "some", "ALL"] {
            assert!(parse_top(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes() {
        let parse = |text| parse_size(text).ok();
        assert_eq!(parse("4096"), Some(4096));
        assert_eq!(parse("64KiB"), Some(65_536));
        assert_eq!(parse("2M"), Some(2 << 20));
        assert_eq!(parse("1.5 GiB"), Some(3 << 29));
        assert_eq!(parse("18446744073709551615"), Some(u64::MAX));
        for bad in ["", "M", "-1", "4 apples", "1e9", "inf", "nan", "20000000T"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn durations() {
        let parse = |text| parse_duration(text).ok();
        assert_eq!(parse("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse("2"), Some(Duration::from_secs(2)));
        assert_eq!(parse("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(parse("2m"), Some(Duration::from_secs(120)));
        assert_eq!(parse("1h"), Some(Duration::from_secs(3600)));
        let far = ["876001h", "10000000000000000000", "100000000000000000000"];
        let none = [
            "",
            "s",
            "0",
            "0ms",
            "999us",
            "-1s",
            "2 parsecs",
            "1e400",
            "1..2s",
        ];
        for bad in far.into_iter().chain(none) {
            assert_eq!(parse(bad), None, "{bad}");
        }
        let moment = |text: &str| parse_moment(text).ok();
        assert_eq!(moment("0"), Some(Duration::ZERO));
        assert_eq!(moment("1.5us"), Some(Duration::from_nanos(1500)));
        let exact = 9_007_199_254_740_993;
        assert_eq!(
            moment(&format!("{exact}ns")),
            Some(Duration::from_nanos(exact))
        );
        assert_eq!(moment("-1ns"), None);
    }
}
