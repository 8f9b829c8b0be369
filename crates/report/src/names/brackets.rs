//! Matches the brackets of a name.

/// Limit on the depth: the parser is recursive, so deeper brackets are read as text.
const MAX_DEPTH: usize = 64;

/// Symbols that may follow `operator` and contain bracket characters, longer ones first.
const SYMBOLS: [&str; 13] = [
    "<=>", "<<=", ">>=", "->*", "()", "[]", "->", "<<", ">>", "<=", ">=", "<", ">",
];

/// Length in bytes of the symbol after `operator` at `at`, if it is one of these.
pub(super) fn operator_symbol(name: &str, at: usize) -> Option<usize> {
    let rest = name.get(at..)?.strip_prefix("operator")?;
    let before = name[..at].chars().next_back();
    if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
        return None;
    }
    // nvcc writes `operator ()`.
    let spaces = usize::from(rest.starts_with(' '));
    let rest = &rest[spaces..];
    let symbol = SYMBOLS.iter().find(|&&symbol| rest.starts_with(symbol))?;
    Some(spaces + symbol.len())
}

/// The closing bracket of each opening one.
pub(super) struct Partners {
    /// By position of the opening bracket; 0 if it has none.
    closing: Vec<usize>,
}

impl Partners {
    /// Matches the brackets of `name` in one pass.
    pub(super) fn of(name: &str) -> Self {
        let bytes = name.as_bytes();
        let mut closing = vec![0; bytes.len()];
        let mut open: Vec<usize> = Vec::new();
        // Number of open brackets of each kind, so that an unmatched one costs nothing.
        let mut counts = [0_usize; 128];
        let mut at = 0;
        while at < bytes.len() {
            if bytes[at] == b'o'
                && let Some(symbol) = operator_symbol(name, at)
            {
                at += "operator".len() + symbol;
                continue;
            }
            let byte = bytes[at];
            match byte {
                b'<' if is_arrow(bytes, at) => {}
                b'<' | b'(' | b'[' | b'{' => {
                    open.push(at);
                    counts[usize::from(byte)] += 1;
                }
                // The arrow before a result type.
                b'>' if at > 0 && bytes[at - 1] == b'-' => {}
                b'>' | b')' | b']' | b'}' => {
                    close(bytes, at, &mut open, &mut counts, &mut closing);
                }
                _ => {}
            }
            at += 1;
        }
        // A truncated name lacks closing brackets.
        if name.ends_with("...") {
            for &at in open.iter().take(MAX_DEPTH) {
                closing[at] = bytes.len();
            }
        }
        Self { closing }
    }

    /// Position of the bracket that closes the one at `at`.
    pub(super) fn of_open(&self, at: usize) -> Option<usize> {
        self.closing.get(at).copied().filter(|&close| close > 0)
    }
}

/// A comparison or an arrow between callers: `a <- b`, `a < b`.
fn is_arrow(bytes: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|at| bytes.get(at));
    before == Some(&b' ') && matches!(bytes.get(at + 1), Some(b'-' | b' '))
}

fn close(
    bytes: &[u8],
    at: usize,
    open: &mut Vec<usize>,
    counts: &mut [usize; 128],
    closing: &mut [usize],
) {
    let partner = match bytes[at] {
        b'>' => b'<',
        b')' => b'(',
        b']' => b'[',
        _ => b'{',
    };
    // `>` only closes the innermost bracket: elsewhere it is a comparison.
    let is_innermost = open.last().is_some_and(|&last| bytes[last] == partner);
    if counts[usize::from(partner)] == 0 || (partner == b'<' && !is_innermost) {
        return;
    }
    while let Some(last) = open.pop() {
        counts[usize::from(bytes[last])] -= 1;
        if bytes[last] == partner {
            if open.len() < MAX_DEPTH {
                closing[last] = at;
            }
            return;
        }
    }
}
