//! Versions of `cuptiGetVersion`, as far as records depend on them.

use std::fmt;

/// A version of CUPTI, ordered by what its records have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    number: u32,
    generation: Generation,
}

/// Fields that records of a version have at their end. 12.1 says 18 like 11.8; its kernels have two
/// fields more, which nothing here reads, so that the two need not be told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Generation {
    /// 11.8 to 12.3, and what is newer than 13.5: the part that all have.
    Common,
    /// 12.4 and later.
    V12_4,
    /// 12.8 and later.
    V12_8,
    /// 13.0 and later.
    V13_0,
    /// 13.5.
    V13_5,
}

/// 11.8 and 12.1.
const OLDEST: u32 = 18;
/// 12.4.
const V12_4: u32 = 22;
/// 12.8.
const V12_8: u32 = 26;
/// 13.0; from here on it is major, minor and patch with two digits each.
const V13_0: u32 = 130_000;
/// 13.5, and the last number that can be one of it.
const V13_5: std::ops::RangeInclusive<u32> = 130_500..=130_599;

impl Version {
    /// `None`: older than 11.8, of which nothing is known here.
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

    /// As CUPTI says it.
    #[must_use]
    pub fn number(self) -> u32 {
        self.number
    }

    /// Whether its records are known. Of a newer one, those fields are read that all versions
    /// have had: they never moved.
    #[must_use]
    pub fn is_known(self) -> bool {
        self.number <= *V13_5.end()
    }

    pub(super) fn has(self, generation: Generation) -> bool {
        self.generation >= generation
    }

    /// Whether `id` of a context or stream stands for none. 13.5 writes 0 where 13.0 and older
    /// write all ones; no context or stream has either number, so that what lies between, or is
    /// newer, may mean it by both.
    pub(super) fn is_no_id(self, id: u32) -> bool {
        id == u32::MAX || (id == 0 && self.number > V13_0 + 99)
    }
}

impl fmt::Display for Version {
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
    fn versions_have_what_their_headers_have() {
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
            let version = Version::new(number).unwrap();
            assert_eq!(version.generation, generation, "{number}");
            assert_eq!(version.is_known(), known, "{number}");
        }
        assert_eq!(Version::new(17), None);
        assert_eq!(Version::new(0), None);
    }

    #[test]
    fn no_id_is_all_ones_and_later_zero_too() {
        for (number, zero_is_none) in [
            (18, false),
            (26, false),
            (130_001, false),
            (130_400, true),
            (130_500, true),
            (140_000, true),
        ] {
            let version = Version::new(number).unwrap();
            assert!(version.is_no_id(u32::MAX));
            assert_eq!(version.is_no_id(0), zero_is_none, "{number}");
            assert!(!version.is_no_id(1));
        }
    }

    #[test]
    fn versions_are_said_as_users_know_them() {
        let text = |number| Version::new(number).unwrap().to_string();
        assert_eq!(text(18), "API 18");
        assert_eq!(text(130_001), "13.0");
        assert_eq!(text(130_500), "13.5");
    }
}
