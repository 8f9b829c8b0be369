//! Versions of CUPTI (`cuptiGetVersion`), as far as record layouts depend on them.

use std::fmt;

/// A version of CUPTI, ordered by the fields of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CuptiVersion {
    number: u32,
    generation: Generation,
}

/// Fields appended to records by version. 12.1 reports 18 like 11.8; its kernel records have two
/// more fields, which are not read, so the two need not be distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Generation {
    /// 11.8 to 12.3, and versions newer than 13.5: the common part.
    Common,
    /// Version 12.4 and later.
    V12_4,
    /// Version 12.8 and later.
    V12_8,
    /// Version 13.0 and later.
    V13_0,
    /// Version 13.5.
    V13_5,
}

/// Number of 11.8 and 12.1.
const OLDEST: u32 = 18;
/// Number of 12.4.
const V12_4: u32 = 22;
/// Number of 12.8.
const V12_8: u32 = 26;
/// Number of 13.0; from here on it is major, minor and patch with two digits each.
const V13_0: u32 = 130_000;
/// Numbers of 13.5.
const V13_5: std::ops::RangeInclusive<u32> = 130_500..=130_599;

impl CuptiVersion {
    /// `None` for versions older than 11.8, whose layouts are unknown.
    #[must_use]
    pub fn new(number: u32) -> Option<Self> {
        let generation = match number {
            ..OLDEST => return None,
            OLDEST..V12_4 => Generation::Common,
            V12_4..V12_8 => Generation::V12_4,
            V12_8..V13_0 => Generation::V12_8,
            number if V13_5.contains(&number) => Generation::V13_5,
            number if number < *V13_5.start() => Generation::V13_0,
            _ => Generation::Common,
        };
        Some(Self { number, generation })
    }

    /// The number that CUPTI reports.
    #[must_use]
    pub fn number(self) -> u32 {
        self.number
    }

    /// Whether the record layouts are known. For a newer version, only the fields common to all
    /// versions are read: these have never moved.
    #[must_use]
    pub fn is_known(self) -> bool {
        self.number <= *V13_5.end()
    }

    pub(super) fn has(self, generation: Generation) -> bool {
        self.generation >= generation
    }

    /// Whether `id` of a context or stream means "none". 13.5 writes 0 where 13.0 and older write
    /// all ones; no context or stream has either id, so for versions between and after them both
    /// mean "none".
    pub(super) fn is_no_id(self, id: u32) -> bool {
        id == u32::MAX || (id == 0 && self.number > V13_0 + 99)
    }
}

impl fmt::Display for CuptiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            number if number >= V13_0 => {
                write!(f, "{}.{}", number / 10_000, number / 100 % 100)
            }
            number => write!(f, "API {number}"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_the_fields_of_their_headers() {
        for (number, generation, known) in [
            (18, Generation::Common, true),
            (21, Generation::Common, true),
            (22, Generation::V12_4, true),
            (25, Generation::V12_4, true),
            (26, Generation::V12_8, true),
            (28, Generation::V12_8, true),
            (130_001, Generation::V13_0, true),
            (130_400, Generation::V13_0, true),
            (130_500, Generation::V13_5, true),
            (130_501, Generation::V13_5, true),
            (130_600, Generation::Common, false),
            (140_000, Generation::Common, false),
            (u32::MAX, Generation::Common, false),
        ] {
            let version = CuptiVersion::new(number).unwrap();
            assert_eq!(version.generation, generation, "{number}");
            assert_eq!(version.is_known(), known, "{number}");
        }
        assert_eq!(CuptiVersion::new(17), None);
        assert_eq!(CuptiVersion::new(0), None);
    }

    #[test]
    fn missing_ids_are_all_ones_and_later_also_zero() {
        for (number, zero_is_none) in [
            (18, false),
            (26, false),
            (130_001, false),
            (130_400, true),
            (130_500, true),
            (140_000, true),
        ] {
            let version = CuptiVersion::new(number).unwrap();
            assert!(version.is_no_id(u32::MAX));
            assert_eq!(version.is_no_id(0), zero_is_none, "{number}");
            assert!(!version.is_no_id(1));
        }
    }

    #[test]
    fn versions_are_displayed_as_release_numbers() {
        let text = |number| CuptiVersion::new(number).unwrap().to_string();
        assert_eq!(text(18), "API 18");
        assert_eq!(text(130_001), "13.0");
        assert_eq!(text(130_500), "13.5");
    }
}
