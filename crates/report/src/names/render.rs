//! Writes the tree of a name as text, in the detail requested.

use super::tree::{Argument, NameKind, NameNode, NameSegment, Sequence};
use super::weight::{self, Class};

/// Function names shorter than this are shown with the name before them.
const SHORT: usize = 8;

/// Parts of a name that are written.
#[derive(Clone, Copy)]
pub(super) struct NameShape<'t> {
    /// Whether all namespaces are written.
    pub(super) namespaces: bool,
    /// Whether parameters, result and compiler suffixes of the function are written.
    pub(super) parameters: bool,
    /// Ranks of template arguments, by index: those with a rank below `least` are omitted; without
    /// ranks, none.
    pub(super) ranks: &'t [usize],
    pub(super) least: usize,
    /// Whether a lambda in a function with a functor as template argument is written as the
    /// functor.
    pub(super) hoist: bool,
}

impl NameShape<'_> {
    /// The parts of a simplified name.
    pub(super) const SIMPLE: Self = Self {
        namespaces: false,
        parameters: false,
        ranks: &[],
        least: 0,
        hoist: false,
    };

    fn has(&self, argument: &Argument<'_>) -> bool {
        let rank = self.ranks.get(argument.index).copied();
        rank.is_none_or(|rank| rank >= self.least)
    }
}

/// Range of each argument in the text, by index.
pub(super) type Spans = Vec<(usize, usize)>;

/// Writes a name as text.
pub(super) fn render(
    nodes: &Sequence<'_>,
    shape: NameShape<'_>,
    spans: Option<&mut Spans>,
) -> String {
    let mut writer = NameWriter {
        out: String::new(),
        shape,
        spans,
    };
    writer.whole(nodes);
    writer.out
}

struct NameWriter<'s, 't> {
    out: String,
    shape: NameShape<'t>,
    spans: Option<&'s mut Spans>,
}

impl NameWriter<'_, '_> {
    fn whole(&mut self, nodes: &Sequence<'_>) {
        if self.shape.parameters {
            return self.sequence(nodes, true);
        }
        if let Some(function) = function_of(nodes) {
            return self.path(function, true);
        }
        let end = nodes.len() - added(nodes);
        let begin = match nodes.as_slice() {
            [NameNode::Path(path), NameNode::Text(text), ..]
                if path.len() == 1 && path[0].name() == "void" && text.starts_with(' ') =>
            {
                1
            }
            _ => 0,
        };
        self.nodes(nodes.get(begin..end).unwrap_or_default(), true);
    }

    fn sequence(&mut self, nodes: &Sequence<'_>, is_whole: bool) {
        if let Some(value) = weight::cast(nodes) {
            self.out.push_str(value);
        } else if let (false, Some(local)) = (self.shape.parameters, local_of(nodes)) {
            self.path(local, is_whole);
        } else {
            self.nodes(nodes, is_whole);
        }
    }

    fn nodes(&mut self, nodes: &[NameNode<'_>], is_whole: bool) {
        let last = nodes.len().saturating_sub(1);
        for (index, node) in nodes.iter().enumerate() {
            match node {
                NameNode::Text(text) => {
                    let text = if index == 0 { text.trim_start() } else { text };
                    let text = if index == last { text.trim_end() } else { text };
                    self.text(text);
                }
                NameNode::Path(path) => self.path(path, is_whole),
                NameNode::Group(open, list) => self.group(*open, list),
            }
        }
    }

    /// `char *` is written `char*`.
    fn text(&mut self, text: &str) {
        let mut characters = text.chars().peekable();
        while let Some(c) = characters.next() {
            let next = characters.peek();
            if c != ' ' || !next.is_some_and(|next| "*&".contains(*next)) {
                self.out.push(c);
            }
        }
    }

    fn group(&mut self, open: u8, list: &[Sequence<'_>]) {
        let (open, close) = match open {
            b'(' => ('(', ')'),
            b'[' => ('[', ']'),
            b'{' => ('{', '}'),
            _ => ('<', '>'),
        };
        self.out.push(open);
        self.list(list);
        self.out.push(close);
    }

    fn list(&mut self, list: &[Sequence<'_>]) {
        for (index, nodes) in list.iter().enumerate() {
            if index > 0 {
                self.out.push_str(", ");
            }
            self.sequence(nodes, false);
        }
    }

    fn path(&mut self, path: &[NameSegment<'_>], is_whole: bool) {
        if self.shape.hoist
            && !is_whole
            && let Some(functor) = weight::functor_of(path)
            && self.shape.has(functor)
        {
            return self.argument(functor);
        }
        let is_std = path.first().is_some_and(|part| part.name() == "std");
        let mut parts: Vec<_> = path.iter().collect();
        if !self.shape.parameters {
            parts = visible(&parts);
        }
        let first = match self.shape.namespaces {
            true => 0,
            false => first_shown(&parts, is_whole),
        };
        let last = parts.len().saturating_sub(1);
        for (index, part) in parts.iter().enumerate().skip(first) {
            if index > first {
                self.out.push_str("::");
            }
            self.part(part, is_std);
            let has_parameters = match (index == last, &part.kind) {
                _ if self.shape.parameters => true,
                (_, NameKind::Name(name)) if name.starts_with('\'') => true,
                (is_last, _) => is_last && !is_whole,
            };
            if let (Some(list), true) = (&part.parameters, has_parameters) {
                self.group(b'(', list);
                self.out.push_str(part.qualifiers);
            }
        }
    }

    fn part(&mut self, part: &NameSegment<'_>, is_std: bool) {
        match &part.kind {
            NameKind::Name("basic_string") if weight::is_of_char(part) => {
                self.out.push_str("string");
                return;
            }
            NameKind::Name("operator ()") => self.out.push_str("operator()"),
            NameKind::Name(name) => self.out.push_str(name),
            NameKind::Anonymous(name) => self.out.push_str(name),
            NameKind::Lambda(nodes, number) => {
                self.out.push('{');
                self.sequence(nodes, false);
                if let Some(number) = number {
                    self.out.push('#');
                    self.out.push_str(number);
                }
                self.out.push('}');
            }
            NameKind::Angle(list) => self.group(b'<', list),
        }
        if let Some(arguments) = &part.arguments {
            self.arguments(arguments, is_std);
        }
    }

    fn arguments(&mut self, arguments: &[Argument<'_>], is_std: bool) {
        let is_default = |index: usize, argument: &Argument<'_>| {
            index > 0 && weight::is_default(&argument.nodes, is_std)
        };
        let shown = arguments.iter().enumerate();
        let shown = shown.filter(|(index, one)| self.shape.has(one) && !is_default(*index, one));
        let shown: Vec<_> = shown.map(|(_, argument)| argument).collect();
        if shown.is_empty() && !arguments.is_empty() {
            return;
        }
        self.out.push('<');
        for (index, argument) in shown.into_iter().enumerate() {
            if index > 0 {
                self.out.push_str(", ");
            }
            self.argument(argument);
        }
        self.out.push('>');
    }

    fn argument(&mut self, argument: &Argument<'_>) {
        let begin = self.out.len();
        match weight::number(&argument.nodes) {
            Some(number) => self.out.push_str(number),
            None => self.sequence(&argument.nodes, false),
        }
        let end = self.out.len();
        if let Some(span) = self.spans.as_mut().and_then(|s| s.get_mut(argument.index)) {
            *span = (begin, end);
        }
    }
}

/// The path of the function, if the rest is its result and compiler suffixes.
fn function_of<'n, 'a>(nodes: &'n Sequence<'a>) -> Option<&'n [NameSegment<'a>]> {
    let end = nodes.len() - added(nodes);
    let (last, before) = nodes.get(..end)?.split_last()?;
    let NameNode::Path(path) = last else {
        return None;
    };
    path.last()?.parameters.as_ref()?;
    is_result(before).then_some(path)
}

/// Whether this can be a result type before a function.
fn is_result(nodes: &[NameNode<'_>]) -> bool {
    nodes.iter().all(|node| match node {
        NameNode::Text(text) => text.chars().all(|c| " *&".contains(c)),
        NameNode::Path(_) | NameNode::Group(..) => true,
    })
}

/// The path of a function's local entity, if the rest is the function's result.
fn local_of<'n, 'a>(nodes: &'n Sequence<'a>) -> Option<&'n [NameSegment<'a>]> {
    let [before @ .., NameNode::Path(path)] = nodes.as_slice() else {
        return None;
    };
    let (_, owners) = path.split_last()?;
    let is_local = owners.iter().any(|owner| owner.parameters.is_some());
    (is_local && !before.is_empty() && is_result(before)).then_some(path)
}

/// Number of nodes at the end that the compiler added: `[clone .isra.0]`, `(.cold)`.
fn added(nodes: &Sequence<'_>) -> usize {
    let is_of_compiler = |list: &[Sequence<'_>]| match list.first().map(Vec::as_slice) {
        Some([NameNode::Path(path), ..]) => {
            let name = path[0].name();
            name == "clone" || name.starts_with('.')
        }
        _ => false,
    };
    let mut end = nodes.len();
    while let Some(NameNode::Group(_, list)) = nodes[..end].last()
        && is_of_compiler(list)
    {
        end -= 1;
        if let Some(NameNode::Text(text)) = nodes[..end].last()
            && text.trim().is_empty()
        {
            end -= 1;
        }
    }
    nodes.len() - end
}

/// The informative parts: without anonymous namespaces, call operators of lambdas, and hashes.
fn visible<'n, 'a>(parts: &[&'n NameSegment<'a>]) -> Vec<&'n NameSegment<'a>> {
    let mut shown: Vec<&NameSegment<'_>> = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let after_lambda = shown.last().is_some_and(|before| is_lambda(before));
        let is_hash = index > 0 && index + 1 == parts.len() && is_hash(part.name());
        match part.kind {
            NameKind::Anonymous(_) => {}
            NameKind::Name("operator()" | "operator ()") if after_lambda => {}
            NameKind::Name(_) if is_hash => {}
            _ => shown.push(part),
        }
    }
    shown
}

/// The hash at the end of names in Rust's legacy mangling.
fn is_hash(name: &str) -> bool {
    name.len() == 17
        && name.starts_with('h')
        && name.bytes().skip(1).all(|byte| byte.is_ascii_hexdigit())
}

fn is_lambda(part: &NameSegment<'_>) -> bool {
    matches!(part.kind, NameKind::Lambda(..)) || part.name().starts_with("'lambda")
}

/// The first part written if namespaces are omitted.
fn first_shown(parts: &[&NameSegment<'_>], is_whole: bool) -> usize {
    let Some(last) = parts.len().checked_sub(1) else {
        return 0;
    };
    let mut first = last;
    while let Some(before) = first.checked_sub(1) {
        let (part, owner) = (parts[first], parts[before]);
        let name = part.name();
        let needs_owner = is_lambda(part) || name.starts_with("operator") || name.is_empty();
        let is_function = first == last || is_lambda(parts[first + 1]);
        let is_short = is_whole && is_function && name.len() < SHORT;
        if !needs_owner && !is_short && !is_class(owner, name) {
            break;
        }
        first = before;
    }
    first
}

/// Whether the owner of a member is informative: a class or a function, not a namespace.
fn is_class(owner: &NameSegment<'_>, member: &str) -> bool {
    let name = owner.name();
    let is_type = name.starts_with(|c: char| c.is_uppercase())
        && name.contains(|c: char| c.is_lowercase())
        || name == member.trim_start_matches('~');
    is_type
        || owner.arguments.is_some()
        || owner.parameters.is_some()
        || !matches!(owner.kind, NameKind::Name(_) | NameKind::Anonymous(_))
}

/// Rank of every argument, by index: those with the lowest rank are omitted first.
pub(super) fn ranks(classes: &[(Class, usize)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..classes.len()).collect();
    // Least informative first, of these the most deeply nested, of these the rightmost.
    order.sort_by_key(|&index| {
        let (class, depth) = classes[index];
        (class, usize::MAX - depth, usize::MAX - index)
    });
    let mut ranks = vec![0; classes.len()];
    for (rank, &index) in order.iter().enumerate() {
        ranks[index] = rank;
    }
    ranks
}
