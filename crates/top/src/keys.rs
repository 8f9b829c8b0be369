//! Keys, decoded from the bytes that a terminal sends.

/// A key, or a combination of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// A character.
    Char(char),
    /// A letter together with the control key.
    Ctrl(char),
    /// Enter.
    Enter,
    /// Escape.
    Esc,
    /// Backspace.
    Backspace,
    /// Tab.
    Tab,
    /// Tab together with shift.
    BackTab,
    /// Up arrow.
    Up,
    /// Down arrow.
    Down,
    /// Left arrow.
    Left,
    /// Right arrow.
    Right,
    /// Home.
    Home,
    /// End.
    End,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// The wheel of the mouse, in rows: negative for up.
    Wheel(isize),
    /// The left button of the mouse, at a column and a line of the terminal, from 0.
    Click {
        /// Column.
        x: u16,
        /// Line.
        y: u16,
    },
}

const ESC: u8 = 0x1b;

/// Rows that a step of the wheel scrolls by.
const WHEEL: isize = 3;

/// Longest escape sequence that is waited for, bytes.
const MAX_SEQUENCE: usize = 32;

/// Decodes keys from bytes that arrive in pieces.
#[derive(Debug, Default)]
pub(crate) struct KeyDecoder {
    pending: Vec<u8>,
}

/// Result of decoding the first bytes.
enum Decoded {
    /// A key, or none for a sequence that is not understood, and its length.
    Whole(Option<Key>, usize),
    /// More bytes are needed.
    Begun,
}

impl KeyDecoder {
    /// The keys in `bytes`, after those of earlier calls that were incomplete.
    pub(crate) fn decode(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.pending.extend_from_slice(bytes);
        let mut keys = Vec::new();
        while !self.pending.is_empty() {
            match first(&self.pending) {
                Decoded::Whole(key, length) => {
                    keys.extend(key);
                    self.pending.drain(..length);
                }
                Decoded::Begun => break,
            }
        }
        keys
    }

    /// Whether an escape sequence, or the key of that name, is incomplete.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The key meant by bytes after which no more arrive: that of an escape character is itself one.
    pub(crate) fn flush(&mut self) -> Option<Key> {
        let pending = std::mem::take(&mut self.pending);
        (pending == [ESC]).then_some(Key::Esc)
    }
}

fn first(bytes: &[u8]) -> Decoded {
    let whole = |key| Decoded::Whole(Some(key), 1);
    match bytes[0] {
        ESC => escape(bytes),
        b'\r' | b'\n' => whole(Key::Enter),
        b'\t' => whole(Key::Tab),
        0x08 | 0x7f => whole(Key::Backspace),
        0 => Decoded::Whole(None, 1),
        byte @ 1..=0x1a => whole(Key::Ctrl(char::from(byte - 1 + b'a'))),
        0x1c..=0x1f => Decoded::Whole(None, 1),
        _ => character(bytes),
    }
}

fn character(bytes: &[u8]) -> Decoded {
    let length = match bytes[0] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    };
    let Some(bytes) = bytes.get(..length) else {
        return Decoded::Begun;
    };
    let text = std::str::from_utf8(bytes).ok();
    match text.and_then(|text| text.chars().next()) {
        Some(c) => Decoded::Whole(Some(Key::Char(c)), length),
        None => Decoded::Whole(None, 1),
    }
}

fn escape(bytes: &[u8]) -> Decoded {
    match bytes.get(1) {
        None => Decoded::Begun,
        Some(b'[') => sequence(bytes),
        Some(b'O') => match bytes.get(2) {
            None => Decoded::Begun,
            Some(&last) => Decoded::Whole(named(b"", last), 3),
        },
        // A key together with alt, which is not used, looks the same.
        Some(_) => Decoded::Whole(Some(Key::Esc), 1),
    }
}

/// A control sequence: parameters, and the byte that ends it.
fn sequence(bytes: &[u8]) -> Decoded {
    let parameters = &bytes[2..];
    let end = parameters
        .iter()
        .position(|byte| (0x40..=0x7e).contains(byte));
    match end {
        Some(end) => Decoded::Whole(named(&parameters[..end], parameters[end]), end + 3),
        None if bytes.len() < MAX_SEQUENCE => Decoded::Begun,
        None => Decoded::Whole(None, bytes.len()),
    }
}

/// An event of the mouse: `<button;column;line`, both from 1, and `M` for a press.
fn mouse(parameters: &[u8], last: u8) -> Option<Key> {
    let text = std::str::from_utf8(parameters).ok()?;
    let mut numbers = text.split(';').map(|number| number.parse::<u16>().ok());
    let button = numbers.next()??;
    let mut place = || numbers.next()??.checked_sub(1);
    let (x, y) = (place()?, place()?);
    // Shift, alt and control make no difference.
    match (last, button & !0b1_1100) {
        (b'M', 0) => Some(Key::Click { x, y }),
        (b'M', 64) => Some(Key::Wheel(-WHEEL)),
        (b'M', 65) => Some(Key::Wheel(WHEEL)),
        _ => None,
    }
}

fn named(parameters: &[u8], last: u8) -> Option<Key> {
    if let [b'<', parameters @ ..] = parameters {
        return mouse(parameters, last);
    }
    // Behind a semicolon: shift, alt and control, which make no difference.
    let number = parameters.split(|&byte| byte == b';').next();
    Some(match (last, number) {
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'C', _) => Key::Right,
        (b'D', _) => Key::Left,
        (b'H', _) | (b'~', Some(b"1" | b"7")) => Key::Home,
        (b'F', _) | (b'~', Some(b"4" | b"8")) => Key::End,
        (b'~', Some(b"5")) => Key::PageUp,
        (b'~', Some(b"6")) => Key::PageDown,
        (b'Z', _) => Key::BackTab,
        (b'M', _) => Key::Enter,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_decoded_whatever_the_pieces() {
        let sent = b"j\x1b[A\x1bOB\x1b[1;5C\x1b[6~\xc3\xa9\r\t\x1b[Z\x7f\x03\x1b[200~";
        let keys = [
            Key::Char('j'),
            Key::Up,
            Key::Down,
            Key::Right,
            Key::PageDown,
            Key::Char('é'),
            Key::Enter,
            Key::Tab,
            Key::BackTab,
            Key::Backspace,
            Key::Ctrl('c'),
        ];
        for size in 1..=sent.len() {
            let mut decoder = KeyDecoder::default();
            let pieces = sent.chunks(size);
            let found: Vec<_> = pieces.flat_map(|piece| decoder.decode(piece)).collect();
            assert_eq!(found, keys, "{size}");
            assert!(!decoder.is_waiting());
        }
    }

    #[test]
    fn an_escape_character_alone_is_a_key_once_nothing_follows() {
        let mut decoder = KeyDecoder::default();
        assert_eq!(decoder.decode(b"\x1b"), []);
        assert!(decoder.is_waiting());
        assert_eq!(decoder.flush(), Some(Key::Esc));
        assert_eq!(decoder.decode(b"\x1b\x1b[A"), [Key::Esc, Key::Up]);
        assert_eq!(decoder.decode(b"\x1b["), []);
        assert_eq!(decoder.flush(), None);
    }

    #[test]
    fn clicks_and_the_wheel() {
        let mut decoder = KeyDecoder::default();
        let sent = b"\x1b[<0;5;3M\x1b[<0;5;3m\x1b[<64;1;1M\x1b[<69;80;24M\x1b[<2;1;1M\x1b[<35;1;1M";
        let keys = [Key::Click { x: 4, y: 2 }, Key::Wheel(-3), Key::Wheel(3)];
        assert_eq!(decoder.decode(sent), keys);
        for wrong in ["0;5", "0;0;1", "0;5;99999", "1;;1", ""] {
            let sent = format!("\x1b[<{wrong}M");
            assert_eq!(decoder.decode(sent.as_bytes()), [], "{wrong}");
        }
    }

    #[test]
    fn bytes_that_are_no_keys_are_skipped() {
        let mut decoder = KeyDecoder::default();
        let long = [b"\x1b[".as_slice(), &[b'0'; 40]].concat();
        assert_eq!(decoder.decode(&long), []);
        assert_eq!(decoder.decode(b"\xff\x00a"), [Key::Char('a')]);
        assert_eq!(decoder.decode(b"\xc3("), [Key::Char('(')]);
    }
}
