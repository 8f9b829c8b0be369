//! Which brackets of a name belong together.

/// Nested deeper, brackets are text: what reads them calls itself.
const MAX_DEPTH: usize = 64;

/// The symbols that `operator` takes and that look like brackets, longer ones first.
const SYMBOLS: [&str; 13] = [
    "<=>", "<<=", ">>=", "->*", "()", "[]", "->", "<<", ">>", "<=", ">=", "<", ">",
];

/// Bytes of the symbol after `operator` at `at`, if that is one of those that look like brackets.
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

/// For each bracket that opens, where it closes.
pub(super) struct Partners {
    /// By the place of the opening one; 0 if there is none.
    closing: Vec<usize>,
}

impl Partners {
    /// Looks through `name` once.
    pub(super) fn of(name: &str) -> Self {
        let bytes = name.as_bytes();
        let mut closing = vec![0; bytes.len()];
        let mut open: Vec<usize> = Vec::new();
        // How many of each kind are open, so that a stray one costs nothing.
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
                // The arrow of a result.
                b'>' if at > 0 && bytes[at - 1] == b'-' => {}
                b'>' | b')' | b']' | b'}' => {
                    close(bytes, at, &mut open, &mut counts, &mut closing);
                }
                _ => {}
            }
            at += 1;
        }
        // The rest of a name that was cut is missing, and not its brackets' fault.
        if name.ends_with("...") {
            for &at in open.iter().take(MAX_DEPTH) {
                closing[at] = bytes.len();
            }
        }
        Self { closing }
    }

    /// Where the bracket that opens at `at` closes.
    pub(super) fn of_open(&self, at: usize) -> Option<usize> {
        self.closing.get(at).copied().filter(|&close| close > 0)
    }
}

/// `a <- b`, `a < b`: who calls whom.
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
    // `>` closes only what is innermost: elsewhere it compares.
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
