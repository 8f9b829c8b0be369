//! A streaming writer for Python pickles: protocol 4, with the opcodes that the viewer of PyTorch's
//! memory snapshots supports.
//!
//! The viewer supports a part of the protocol: frames are not needed, strings have at most 4 GiB,
//! and a batch of list items becomes an argument list of JavaScript, which must not be long.
//! Repeated values are written once and memoised: strings here, lists and dictionaries by the
//! caller.

use std::io::{self, Write};

use hashbrown::HashMap;

/// Limit on the list items per batch, as in Python's own pickler.
const BATCH: usize = 1000;

mod opcode {
    pub(super) const PROTO: u8 = 0x80;
    pub(super) const MARK: u8 = b'(';
    pub(super) const EMPTY_LIST: u8 = b']';
    pub(super) const APPENDS: u8 = b'e';
    pub(super) const EMPTY_DICT: u8 = b'}';
    pub(super) const SETITEMS: u8 = b'u';
    pub(super) const TUPLE2: u8 = 0x86;
    pub(super) const MEMOIZE: u8 = 0x94;
    pub(super) const BINGET: u8 = b'h';
    pub(super) const LONG_BINGET: u8 = b'j';
    pub(super) const BININT1: u8 = b'K';
    pub(super) const BININT2: u8 = b'M';
    pub(super) const BININT: u8 = b'J';
    pub(super) const LONG1: u8 = 0x8a;
    pub(super) const TRUE: u8 = 0x88;
    pub(super) const FALSE: u8 = 0x89;
    pub(super) const SHORT_BINUNICODE: u8 = 0x8c;
    pub(super) const BINUNICODE: u8 = b'X';
    pub(super) const STOP: u8 = b'.';
}

/// A written value that can be referred to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memo(u32);

/// A list that is being written.
#[derive(Debug, Default)]
pub(super) struct PickleList {
    items: usize,
}

/// Writes one pickle to `out`.
#[derive(Debug)]
pub(super) struct Pickle<W> {
    out: W,
    memos: u32,
    texts: HashMap<Box<str>, Memo>,
}

impl<W: Write> Pickle<W> {
    pub(super) fn begin(mut out: W) -> io::Result<Self> {
        out.write_all(&[opcode::PROTO, 4])?;
        Ok(Self {
            out,
            memos: 0,
            texts: HashMap::new(),
        })
    }

    /// Ends the pickle; its value is the one written.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.out.write_all(&[opcode::STOP])?;
        self.out.flush()
    }

    /// Writes an integer, in as few bytes as it needs.
    pub(super) fn integer(&mut self, value: impl Into<i128>) -> io::Result<()> {
        let value = value.into();
        let bytes = value.to_le_bytes();
        match value {
            0..=0xff => self.out.write_all(&[opcode::BININT1, bytes[0]]),
            0x100..=0xffff => self.out.write_all(&[opcode::BININT2, bytes[0], bytes[1]]),
            _ if i32::try_from(value).is_ok() => {
                self.out.write_all(&[opcode::BININT])?;
                self.out.write_all(&bytes[..4])
            }
            _ => {
                // Two's complement, up to the byte with the sign.
                let redundant = value.unsigned_abs().leading_zeros().saturating_sub(1) / 8;
                let length = bytes.len() - redundant as usize;
                self.out.write_all(&[opcode::LONG1, length as u8])?;
                self.out.write_all(&bytes[..length])
            }
        }
    }

    pub(super) fn boolean(&mut self, value: bool) -> io::Result<()> {
        let opcode = if value { opcode::TRUE } else { opcode::FALSE };
        self.out.write_all(&[opcode])
    }

    /// Writes a string; a repeated one takes a few bytes.
    pub(super) fn text(&mut self, text: &str) -> io::Result<()> {
        if let Some(memo) = self.texts.get(text) {
            return self.again(*memo);
        }
        match (u8::try_from(text.len()), u32::try_from(text.len())) {
            (Ok(length), _) => self.out.write_all(&[opcode::SHORT_BINUNICODE, length])?,
            (_, Ok(length)) => {
                self.out.write_all(&[opcode::BINUNICODE])?;
                self.out.write_all(&length.to_le_bytes())?;
            }
            _ => return Err(io::Error::other("a string of 4 GiB or more is too long")),
        }
        self.out.write_all(text.as_bytes())?;
        let memo = self.memoise()?;
        self.texts.insert(text.into(), memo);
        Ok(())
    }

    /// Memoises the value written last.
    pub(super) fn memoise(&mut self) -> io::Result<Memo> {
        self.out.write_all(&[opcode::MEMOIZE])?;
        let memo = Memo(self.memos);
        let next = self.memos.checked_add(1);
        self.memos = next.ok_or_else(|| io::Error::other("too many memoised values"))?;
        Ok(memo)
    }

    /// Writes a reference to a memoised value.
    pub(super) fn again(&mut self, memo: Memo) -> io::Result<()> {
        match u8::try_from(memo.0) {
            Ok(short) => self.out.write_all(&[opcode::BINGET, short]),
            Err(_) => {
                self.out.write_all(&[opcode::LONG_BINGET])?;
                self.out.write_all(&memo.0.to_le_bytes())
            }
        }
    }

    /// Writes an empty dictionary, for [`Self::memoise`] and [`Self::fill`].
    pub(super) fn dict(&mut self) -> io::Result<()> {
        self.out.write_all(&[opcode::EMPTY_DICT])
    }

    /// Begins the keys and values of the dictionary, in turns, up to [`Self::filled`].
    pub(super) fn fill(&mut self) -> io::Result<()> {
        self.out.write_all(&[opcode::MARK])
    }

    /// Ends the keys and values of a dictionary.
    pub(super) fn filled(&mut self) -> io::Result<()> {
        self.out.write_all(&[opcode::SETITEMS])
    }

    /// Writes an empty list; [`Self::item`] announces each item and [`Self::end`] ends the list.
    pub(super) fn list(&mut self) -> io::Result<PickleList> {
        self.out.write_all(&[opcode::EMPTY_LIST])?;
        Ok(PickleList::default())
    }

    /// Announces that an item of `list` is written next.
    pub(super) fn item(&mut self, list: &mut PickleList) -> io::Result<()> {
        if list.items.is_multiple_of(BATCH) {
            self.end_batch(list.items)?;
            self.out.write_all(&[opcode::MARK])?;
        }
        list.items += 1;
        Ok(())
    }

    /// Ends the items of a list.
    pub(super) fn end(&mut self, PickleList { items }: PickleList) -> io::Result<()> {
        self.end_batch(items)
    }

    fn end_batch(&mut self, items: usize) -> io::Result<()> {
        match items {
            0 => Ok(()),
            _ => self.out.write_all(&[opcode::APPENDS]),
        }
    }

    /// Makes a pair of the last two values.
    pub(super) fn pair(&mut self) -> io::Result<()> {
        self.out.write_all(&[opcode::TUPLE2])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Bytes that `write` writes, without header and end of the pickle.
    fn written(write: impl FnOnce(&mut Pickle<&mut Vec<u8>>) -> io::Result<()>) -> Vec<u8> {
        let mut out = Vec::new();
        let mut pickle = Pickle::begin(&mut out).unwrap();
        write(&mut pickle).unwrap();
        pickle.finish().unwrap();
        assert_eq!((&out[..2], out.last()), (&[0x80, 4][..], Some(&b'.')));
        out[2..out.len() - 1].to_vec()
    }

    #[test]
    fn integers_take_as_few_bytes_as_they_need() {
        // As `pickle.dumps(value, 4)` of Python 3.11 encodes them.
        for (value, expected) in [
            (0i128, &b"K\x00"[..]),
            (255, b"K\xff"),
            (256, b"M\x00\x01"),
            (65535, b"M\xff\xff"),
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
        assert_eq!(found, b"\x8c\x02\xc3\xa9\x94\x8c\x00\x94h\x00");
        let long = "x".repeat(256);
        let found = written(|p| p.text(&long));
        assert_eq!(found[..5], *b"X\x00\x01\x00\x00");
        assert_eq!((found.len(), found.last()), (262, Some(&0x94)));
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
        let of = |items: usize| {
            written(|p| {
                let mut list = p.list()?;
                for _ in 0..items {
                    p.item(&mut list)?;
                    p.boolean(true)?;
                }
                p.end(list)
            })
        };
        assert_eq!(of(0), b"]");
        assert_eq!(of(2), b"](\x88\x88e");
        let two = of(1001);
        assert!(two.starts_with(b"](\x88") && two.ends_with(b"\x88e(\x88e"));
        assert_eq!(two.len(), 1 + 2 + 1000 + 2 + 1);
    }

    #[test]
    fn dictionaries_and_pairs() {
        let found = written(|p| {
            p.dict()?;
            let memo = p.memoise()?;
            p.fill()?;
            p.text("a")?;
            p.integer(1)?;
            p.integer(2)?;
            p.pair()?;
            p.filled()?;
            p.again(memo)
        });
        assert_eq!(found, b"}\x94(\x8c\x01a\x94K\x01K\x02\x86uh\x00");
    }
}
