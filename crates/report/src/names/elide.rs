//! Omission of characters, where omitting arguments is not enough.

/// Replaces the omitted characters.
const MARK: &str = "...";
/// Minimum of characters kept before the arguments.
const LEAST_HEAD: usize = 6;

/// Width of `text` in columns.
pub(super) fn width(text: &str) -> usize {
    text.chars().count()
}

/// `text` in at most `columns`, without its middle; text in angle brackets is kept if possible.
pub(super) fn middle(text: &str, columns: usize) -> String {
    let width = width(text);
    if width <= columns {
        return text.to_owned();
    }
    let Some(room) = columns.checked_sub(MARK.len()) else {
        return text.chars().take(columns).collect();
    };
    let arguments = text.find('<').map(|at| self::width(&text[at..]));
    let tail = match arguments {
        Some(tail) if tail + LEAST_HEAD <= room => tail,
        _ => room / 2,
    };
    joined(text, room - tail, width - tail)
}

/// The first `head` characters, and those from `from` on.
fn joined(text: &str, head: usize, from: usize) -> String {
    let mut made: String = text.chars().take(head).collect();
    made.push_str(MARK);
    made.extend(text.chars().skip(from));
    made
}

/// `texts`, which are all different, in at most `columns`, shortened so that their differences stay
/// visible as far as there is room.
pub(super) fn windows(texts: &[&str], columns: usize) -> Vec<String> {
    let (shared, furthest) = differences(texts);
    let shown = texts
        .iter()
        .map(|text| window(text, columns, shared, furthest));
    shown.collect()
}

/// Length of the prefix common to all, and of the longest prefix common to two of them.
fn differences(texts: &[&str]) -> (usize, usize) {
    let mut sorted = texts.to_vec();
    sorted.sort_unstable();
    let pairs = sorted.windows(2).map(|pair| match pair {
        [a, b] => common(a, b),
        _ => 0,
    });
    pairs.fold((usize::MAX, 0), |(least, most), length| {
        (least.min(length), most.max(length))
    })
}

fn common(a: &str, b: &str) -> usize {
    let pairs = a.chars().zip(b.chars());
    pairs.take_while(|(a, b)| a == b).count()
}

/// The start of `text`, a window from `shared` to `furthest` characters at least, and its end.
fn window(text: &str, columns: usize, shared: usize, furthest: usize) -> String {
    let width = width(text);
    let marks = 2 * MARK.len();
    if width <= columns || columns <= marks || shared >= width {
        return middle(text, columns);
    }
    // The window begins with the word that differs, or shortly before it.
    let begin = word_before(text, shared);
    let needed = (furthest + 1).saturating_sub(begin);
    let room = columns - marks;
    let head = (room / 3).min(room.saturating_sub(needed)).min(begin);
    let (mut made, begin, room) = if begin <= head + MARK.len() {
        (String::new(), 0, columns)
    } else {
        let mut made: String = text.chars().take(head).collect();
        made.push_str(MARK);
        (made, begin, columns - head - MARK.len())
    };
    let rest: String = text.chars().skip(begin).collect();
    let rest_width = width - begin;
    if rest_width <= room {
        made.push_str(&rest);
        return made;
    }
    let room = room.saturating_sub(MARK.len());
    let needed = (furthest + 1).saturating_sub(begin);
    let front = needed.max(room.div_ceil(2)).min(room);
    made.push_str(&joined(&rest, front, rest_width - (room - front)));
    made
}

/// Start of the word around the character at `at`, if it is near.
fn word_before(text: &str, at: usize) -> usize {
    const FAR: usize = 14;
    let from = at.saturating_sub(FAR);
    let part: Vec<char> = text.chars().skip(from).take(at - from).collect();
    let separator = |c: &char| !c.is_alphanumeric();
    match part.iter().rposition(separator) {
        Some(before) => from + before + 1,
        None if from == 0 => 0,
        None => at.saturating_sub(FAR / 4),
    }
}
