//! A streaming writer for Python pickles: protocol 4, with the opcodes that the viewer of PyTorch's
//! memory snapshots supports.
//!
//! The viewer supports a part of the protocol: frames are not needed, strings have at most 4 GiB,
//! and a batch of list items becomes an argument list of JavaScript, which must not be long.
//! Repeated values are written once and memoised: strings here, lists and dictionaries by the
//! caller.

use std::hash::Hash;
use std::io::{self, Write};

use hashbrown::HashMap;

/// Limit on the list items per batch, as in Python's own pickler.
const BATCH: usize = 1000;

/// Writes one pickle to `out`. Repeated values have keys `K`.
pub(super) struct Pickle<W, K> {
    out: W,
    memos: u32,
    texts: HashMap<Box<str>, u32>,
    values: HashMap<K, u32>,
}

impl<W: Write, K: Hash + Eq> Pickle<W, K> {
    pub(super) fn begin(mut out: W) -> io::Result<Self> {
        // PROTO
        out.write_all(&[0x80, 4])?;
        Ok(Self {
            out,
            memos: 0,
            texts: HashMap::new(),
            values: HashMap::new(),
        })
    }

    /// Ends the pickle; its value is the one written.
    pub(super) fn finish(mut self) -> io::Result<()> {
        // STOP
        self.out.write_all(b".")?;
        self.out.flush()
    }

    /// Writes an integer, in as few bytes as it needs.
    pub(super) fn integer(&mut self, value: impl Into<i128>) -> io::Result<()> {
        let value = value.into();
        let bytes = value.to_le_bytes();
        match value {
            // BININT1, BININT
            0..=0xff => self.out.write_all(&[b'K', bytes[0]]),
            _ if i32::try_from(value).is_ok() => self.out.write_all(&[b"J", &bytes[..4]].concat()),
            _ => {
                // LONG1: two's complement, up to the byte with the sign.
                let redundant = value.unsigned_abs().leading_zeros().saturating_sub(1) / 8;
                let length = bytes.len() - redundant as usize;
                self.out.write_all(&[0x8a, length as u8])?;
                self.out.write_all(&bytes[..length])
            }
        }
    }

    /// Writes a key of a dictionary, with this value.
    pub(super) fn number(&mut self, key: &str, value: impl Into<i128>) -> io::Result<()> {
        self.text(key)?;
        self.integer(value)
    }

    pub(super) fn boolean(&mut self, key: &str, value: bool) -> io::Result<()> {
        self.text(key)?;
        // NEWTRUE, NEWFALSE
        self.out.write_all(&[if value { 0x88 } else { 0x89 }])
    }

    pub(super) fn entry(&mut self, key: &str, value: &str) -> io::Result<()> {
        self.text(key)?;
        self.text(value)
    }

    /// Writes a string; a repeated one takes a few bytes.
    pub(super) fn text(&mut self, text: &str) -> io::Result<()> {
        if let Some(&memo) = self.texts.get(text) {
            return self.get(memo);
        }
        let length = u32::try_from(text.len());
        let length =
            length.map_err(|_| io::Error::other("a string of 4 GiB or more is too long"))?;
        // BINUNICODE
        self.out.write_all(b"X")?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(text.as_bytes())?;
        let memo = self.put()?;
        self.texts.insert(text.into(), memo);
        Ok(())
    }

    /// Writes a value, or a reference to it if one with this key was written.
    pub(super) fn once(
        &mut self,
        key: K,
        write: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        if let Some(&memo) = self.values.get(&key) {
            return self.get(memo);
        }
        write(self)?;
        let memo = self.put()?;
        self.values.insert(key, memo);
        Ok(())
    }

    fn put(&mut self) -> io::Result<u32> {
        // MEMOIZE
        self.out.write_all(&[0x94])?;
        let memo = self.memos;
        self.memos += 1;
        Ok(memo)
    }

    fn get(&mut self, memo: u32) -> io::Result<()> {
        // BINGET, LONG_BINGET
        match u8::try_from(memo) {
            Ok(short) => self.out.write_all(&[b'h', short]),
            Err(_) => {
                self.out.write_all(b"j")?;
                self.out.write_all(&memo.to_le_bytes())
            }
        }
    }

    /// Writes a dictionary; `fill` writes its keys and values in turns.
    pub(super) fn dict(
        &mut self,
        fill: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        // EMPTY_DICT, MARK, SETITEMS
        self.out.write_all(b"}(")?;
        fill(self)?;
        self.out.write_all(b"u")
    }

    /// Writes a list; `write` writes each item.
    pub(super) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        // EMPTY_LIST, MARK, APPENDS
        self.out.write_all(b"]")?;
        let mut count = 0usize;
        for item in items {
            if count.is_multiple_of(BATCH) {
                self.out.write_all(if count == 0 { b"(" } else { b"e(" })?;
            }
            write(self, item)?;
            count += 1;
        }
        self.out.write_all(if count == 0 { b"" } else { b"e" })
    }

    /// Makes a pair of the last two values.
    pub(super) fn pair(&mut self) -> io::Result<()> {
        // TUPLE2
        self.out.write_all(&[0x86])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Bytes that `write` writes, without header and end of the pickle.
    fn written(write: impl FnOnce(&mut Pickle<&mut Vec<u8>, ()>) -> io::Result<()>) -> Vec<u8> {
        let mut out = Vec::new();
        let mut pickle = Pickle::begin(&mut out).unwrap();
        write(&mut pickle).unwrap();
        pickle.finish().unwrap();
        assert_eq!((&out[..2], out.last()), (&[0x80, 4][..], Some(&b'.')));
        out[2..out.len() - 1].to_vec()
    }

    #[test]
    fn integers_take_as_few_bytes_as_they_need() {
        for (value, expected) in [
            (0i128, &b"K\x00"[..]),
            (255, b"K\xff"),
            (256, b"J\x00\x01\x00\x00"),
            (65536, b"J\x00\x00\x01\x00"),
            (-1, b"J\xff\xff\xff\xff"),
            (-(1 << 31), b"J\x00\x00\x00\x80"),
            (1 << 31, b"\x8a\x05\x00\x00\x00\x80\x00"),
            (0x7f00_0000_1000, b"\x8a\x06\x00\x10\x00\x00\x00\x7f"),
            ((1 << 63) - 1, b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"),
            (
                u64::MAX.into(),
                b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00",
            ),
        ] {
            assert_eq!(written(|p| p.integer(value)), expected, "{value}");
        }
    }

    #[test]
    fn texts_are_written_once() {
        let found = written(|p| {
            p.text("é")?;
            p.text("")?;
            p.text("é")
        });
        let expected = b"X\x02\x00\x00\x00\xc3\xa9\x94X\x00\x00\x00\x00\x94h\x00";
        assert_eq!(found, expected);
    }

    #[test]
    fn late_memos_have_longer_numbers() {
        let found = written(|p| {
            for number in 0..=256 {
                p.text(&number.to_string())?;
            }
            p.text("255")?;
            p.text("256")
        });
        assert!(found.ends_with(b"h\xffj\x00\x01\x00\x00"));
    }

    #[test]
    fn lists_come_in_batches() {
        let of = |items: usize| written(|p| p.list(0..items, |p, _| p.integer(7)));
        assert_eq!(of(0), b"]");
        assert_eq!(of(2), b"](K\x07K\x07e");
        let two = of(1001);
        assert!(two.starts_with(b"](K") && two.ends_with(b"\x07e(K\x07e"));
        assert_eq!(two.len(), 1 + 2 + 2000 + 2 + 2);
    }

    #[test]
    fn dictionaries_and_pairs() {
        let found = written(|p| {
            for _ in 0..2 {
                p.once((), |p| {
                    p.dict(|p| {
                        p.number("a", 1)?;
                        p.integer(2)?;
                        p.pair()?;
                        p.boolean("b", true)
                    })
                })?;
            }
            Ok(())
        });
        assert_eq!(
            found,
            b"}(X\x01\x00\x00\x00a\x94K\x01K\x02\x86X\x01\x00\x00\x00b\x94\x88u\x94h\x02"
        );
    }
}
