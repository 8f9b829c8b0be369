//! Parses a demangled name into a tree: paths, their template arguments and parameters.
//!
//! Names come from traced programs, so nothing is assumed about them: an unmatched bracket is text,
//! brackets nested too deeply are text, and every byte is read a fixed number of times.

use super::brackets::{Partners, operator_symbol};

/// Adjacent parts of a name.
pub(super) type Sequence<'a> = Vec<NameNode<'a>>;

/// A part of a sequence.
#[derive(Debug)]
pub(super) enum NameNode<'a> {
    /// Spaces, stars, ampersands, unmatched brackets.
    Text(&'a str),
    /// A qualified name: `a::b<c>(d)::e`.
    Path(Vec<NameSegment<'a>>),
    /// Brackets outside of a path: the opening one, and the comma-separated contents.
    Group(u8, Vec<Sequence<'a>>),
}

/// A component of a path, between two `::`.
#[derive(Debug)]
pub(super) struct NameSegment<'a> {
    pub(super) kind: NameKind<'a>,
    /// Template arguments, if there are any.
    pub(super) arguments: Option<Vec<Argument<'a>>>,
    /// Parameters of a function.
    pub(super) parameters: Option<Vec<Sequence<'a>>>,
    /// `const` and other qualifiers after the parameters.
    pub(super) qualifiers: &'a str,
}

/// Kinds of path components.
#[derive(Debug)]
pub(super) enum NameKind<'a> {
    /// An identifier, or an operator with its symbol.
    Name(&'a str),
    /// An anonymous namespace: `(anonymous namespace)`, `<unnamed>`, `{anonymous}`.
    Anonymous(&'a str),
    /// A lambda: `{lambda(int)#1}`, `{{closure}}`; nsys writes `[lambda(int) (instance 1)]`.
    Lambda(Sequence<'a>, Option<&'a str>),
    /// `<A as B>` of Rust, `<module>` of Python.
    Angle(Vec<Sequence<'a>>),
}

/// A template argument of a component.
#[derive(Debug)]
pub(super) struct Argument<'a> {
    /// Its index in the name: outer arguments and those further left have lower ones.
    pub(super) index: usize,
    /// Nesting depth, from 1.
    pub(super) depth: usize,
    pub(super) nodes: Sequence<'a>,
}

impl<'a> NameSegment<'a> {
    fn new(kind: NameKind<'a>) -> Self {
        Self {
            kind,
            arguments: None,
            parameters: None,
            qualifiers: "",
        }
    }

    /// The identifier; empty for other kinds.
    pub(super) fn name(&self) -> &'a str {
        match self.kind {
            NameKind::Name(name) => name,
            _ => "",
        }
    }
}

/// Parses `name`; also returns the number of template arguments in it.
pub(super) fn parse(name: &str) -> (Sequence<'_>, usize) {
    let mut parser = Parser {
        name,
        partners: Partners::of(name),
        arguments: 0,
        depth: 0,
    };
    let nodes = parser.sequence(0, name.len());
    (nodes, parser.arguments)
}

struct Parser<'a> {
    name: &'a str,
    partners: Partners,
    arguments: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn byte(&self, at: usize, end: usize) -> u8 {
        if at < end {
            self.name.as_bytes()[at]
        } else {
            0
        }
    }

    fn rest(&self, at: usize, end: usize) -> &'a str {
        self.name.get(at..end).unwrap_or_default()
    }

    /// Position of the bracket that closes the one at `at`, if one opens there.
    fn closing(&self, at: usize, end: usize) -> Option<usize> {
        (at < end)
            .then(|| self.partners.of_open(at))
            .flatten()
            .map(|close| close.min(end))
    }

    fn sequence(&mut self, mut at: usize, end: usize) -> Sequence<'a> {
        let mut nodes = Vec::new();
        let mut text = at;
        while at < end {
            if let Some((path, next)) = self.path(at, end) {
                self.push_text(&mut nodes, text, at);
                nodes.push(NameNode::Path(path));
                (at, text) = (next, next);
            } else if let Some(close) = self.closing(at, end) {
                self.push_text(&mut nodes, text, at);
                let bracket = self.byte(at, end);
                nodes.push(NameNode::Group(bracket, self.list(at + 1, close)));
                at = (close + 1).min(end);
                text = at;
            } else {
                at += 1;
            }
        }
        self.push_text(&mut nodes, text, end);
        nodes
    }

    fn push_text(&self, nodes: &mut Sequence<'a>, from: usize, to: usize) {
        let text = self.rest(from, to);
        if !text.is_empty() {
            nodes.push(NameNode::Text(text));
        }
    }

    /// The comma-separated contents; none in empty brackets.
    fn list(&mut self, from: usize, end: usize) -> Vec<Sequence<'a>> {
        let ranges = self.split(from, end);
        ranges.map(|(from, to)| self.sequence(from, to)).collect()
    }

    fn split(&self, from: usize, end: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let mut ranges = Vec::new();
        let (mut at, mut begin) = (from, from);
        while at < end {
            if let Some(close) = self.closing(at, end) {
                at = close;
            } else if self.byte(at, end) == b',' {
                ranges.push((begin, at));
                begin = at + 1;
            }
            at += 1;
        }
        if begin < end || !ranges.is_empty() {
            ranges.push((begin.min(end), end));
        }
        ranges.into_iter()
    }

    fn path(&mut self, at: usize, end: usize) -> Option<(Vec<NameSegment<'a>>, usize)> {
        let mut next = at;
        if self.rest(at, end).starts_with("::") {
            next += 2;
        }
        let mut parts = Vec::new();
        loop {
            let Some((part, after)) = self.part(next, end) else {
                // Text that only begins like a path is no path.
                return (!parts.is_empty()).then(|| (parts, next - 2));
            };
            parts.push(part);
            if !self.rest(after, end).starts_with("::") {
                return Some((parts, after));
            }
            next = after + 2;
        }
    }

    fn part(&mut self, at: usize, end: usize) -> Option<(NameSegment<'a>, usize)> {
        let (kind, mut at) = self.kind(at, end)?;
        let is_operator = matches!(kind, NameKind::Name(name) if name.starts_with("operator"));
        let mut part = NameSegment::new(kind);
        at = self.skip_tags(at, end);
        let mut open = at;
        let rest = self.rest(at, end);
        if rest.starts_with("::<") {
            open += 2;
        } else if is_operator && rest.starts_with(" <") {
            open += 1;
        }
        if self.byte(open, end) == b'<'
            && let Some(close) = self.closing(open, end)
            && self.rest(open, close) != "<unnamed"
        {
            part.arguments = Some(self.arguments(open + 1, close));
            at = self.skip_tags((close + 1).min(end), end);
        }
        if self.byte(at, end) == b'('
            && let Some(close) = self.closing(at, end)
        {
            part.parameters = Some(self.list(at + 1, close));
            let after = (close + 1).min(end);
            at = self.qualifiers(after, end);
            part.qualifiers = self.rest(after, at);
        }
        Some((part, at))
    }

    fn arguments(&mut self, from: usize, end: usize) -> Vec<Argument<'a>> {
        self.depth += 1;
        let ranges = self.split(from, end);
        let arguments = ranges.map(|(from, to)| {
            let index = self.arguments;
            self.arguments += 1;
            Argument {
                index,
                depth: self.depth,
                nodes: self.sequence(from, to),
            }
        });
        let arguments = arguments.collect();
        self.depth -= 1;
        arguments
    }

    fn kind(&mut self, at: usize, end: usize) -> Option<(NameKind<'a>, usize)> {
        if let Some(close) = self.closing(at, end) {
            let inner = self.rest(at + 1, close);
            let after = (close + 1).min(end);
            let kind = match (self.byte(at, end), inner) {
                (b'(', "anonymous namespace") => NameKind::Anonymous("(anonymous namespace)"),
                (b'<', "unnamed") => NameKind::Anonymous("<unnamed>"),
                (b'{', "anonymous") => NameKind::Anonymous("{anonymous}"),
                (b'{', _) => NameKind::Lambda(self.sequence(at + 1, close), None),
                (b'[', _) if inner.starts_with("lambda") => {
                    let number = inner.rsplit_once(" (instance ");
                    let before = number.map_or(inner.len(), |(before, _)| before.len());
                    let nodes = self.sequence(at + 1, at + 1 + before);
                    NameKind::Lambda(nodes, number.map(|(_, n)| n.trim_end_matches(')')))
                }
                (b'<', _) => NameKind::Angle(self.list(at + 1, close)),
                _ => return None,
            };
            return Some((kind, after));
        }
        let after = self.identifier(at, end);
        (after > at).then(|| (NameKind::Name(self.rest(at, after)), after))
    }

    /// End of the identifier that begins at `at`.
    fn identifier(&self, at: usize, end: usize) -> usize {
        if let Some(symbol) = operator_symbol(self.name, at) {
            return (at + "operator".len() + symbol).min(end);
        }
        let rest = self.rest(at, end);
        if rest.starts_with("operator ") {
            let open = (at..end).find(|&at| self.byte(at, end) == b'(');
            return open.unwrap_or(end);
        }
        let mut next = at;
        while next < end {
            let byte = self.byte(next, end);
            let is_local = rest[next - at..].starts_with("<locals>");
            if is_local && next > at && self.byte(next - 1, end) == b'.' {
                next += "<locals>".len();
                continue;
            }
            let ends = b"<>()[]{},*&".contains(&byte) || byte.is_ascii_whitespace();
            if ends || rest[next - at..].starts_with("::") {
                break;
            }
            next += self.name[next..].chars().next().map_or(1, char::len_utf8);
        }
        next.min(end)
    }

    /// ABI tags (`[abi:cxx11]`) are not informative.
    fn skip_tags(&self, mut at: usize, end: usize) -> usize {
        while self.rest(at, end).starts_with("[abi:") {
            let Some(close) = self.closing(at, end) else {
                break;
            };
            at = (close + 1).min(end);
        }
        at
    }

    fn qualifiers(&self, mut at: usize, end: usize) -> usize {
        const WORDS: [&str; 7] = [" const", " volatile", " noexcept", "&&", "&", " &&", " &"];
        while let Some(word) = WORDS
            .iter()
            .find(|&&word| self.rest(at, end).starts_with(word))
        {
            at += word.len();
        }
        at
    }
}
