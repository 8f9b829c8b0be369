//! Classes of template arguments, by how informative they are.

use super::tree::{Argument, NameKind, NameNode, NameSegment, Sequence};

/// Classes, the least informative first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// Types for data access: `array<char*, 3>`, `OffsetCalculator<2>`.
    #[default]
    Helper,
    /// Numbers, and `T1` of nsys.
    Number,
    /// Built-in types like `float`.
    Builtin,
    /// Types other than built-in ones and helpers.
    Type,
    /// The computation: functors and lambdas.
    Functor,
    /// An argument that distinguishes the name from another one shown.
    Different,
}

const HELPERS: [&str; 13] = [
    "array",
    "Array",
    "tuple",
    "pair",
    "integral_constant",
    "allocator",
    "char_traits",
    "OffsetCalculator",
    "TrivialOffsetCalculator",
    "LoadWithoutCast",
    "LoadWithCast",
    "StoreWithoutCast",
    "StoreWithCast",
];

const BUILTINS: [&str; 17] = [
    "void", "bool", "char", "short", "int", "long", "unsigned", "signed", "float", "double",
    "const", "volatile", "__half", "half", "f32", "f64", "__int128",
];

/// Class and depth of every argument, by index.
pub(super) fn classes(nodes: &Sequence<'_>, count: usize) -> Vec<(Class, usize)> {
    let mut classes = vec![(Class::default(), 0); count];
    visit(nodes, &mut classes);
    // A single type argument is the most informative: `cutlass::Kernel2<what_it_computes>`.
    let mut outer = classes.iter_mut().filter(|(_, depth)| *depth == 1);
    if let (Some((class @ Class::Type, _)), None) = (outer.next(), outer.next()) {
        *class = Class::Functor;
    }
    classes
}

/// The highest class among `nodes`.
fn visit(nodes: &Sequence<'_>, classes: &mut [(Class, usize)]) -> Class {
    let mut highest = Class::Helper;
    for node in nodes {
        let class = match node {
            NameNode::Text(_) => Class::Helper,
            NameNode::Group(_, list) => visit_all(list, classes),
            NameNode::Path(path) => visit_path(path, classes),
        };
        highest = highest.max(class);
    }
    highest
}

fn visit_all(list: &[Sequence<'_>], classes: &mut [(Class, usize)]) -> Class {
    let each = list.iter().map(|nodes| visit(nodes, classes));
    each.fold(Class::Helper, Class::max)
}

fn visit_path(path: &[NameSegment<'_>], classes: &mut [(Class, usize)]) -> Class {
    let mut inner = Class::Helper;
    for part in path {
        inner = inner.max(match &part.kind {
            NameKind::Lambda(nodes, _) => visit(nodes, classes),
            NameKind::Angle(list) => visit_all(list, classes),
            NameKind::Name(_) | NameKind::Anonymous(_) => Class::Helper,
        });
        inner = inner.max(visit_all(
            part.parameters.as_deref().unwrap_or_default(),
            classes,
        ));
        for argument in part.arguments.iter().flatten() {
            let nested = visit(&argument.nodes, classes);
            let class = match own_class(&argument.nodes) {
                Class::Helper => Class::Helper,
                class if nested == Class::Functor => class.max(nested),
                class => class,
            };
            if let Some(place) = classes.get_mut(argument.index) {
                *place = (class, argument.depth);
            }
            inner = inner.max(class);
        }
    }
    // A functor within a functor makes the outer one informative.
    match (path_class(path), inner) {
        (Class::Helper, _) => Class::Helper,
        (_, Class::Functor) => Class::Functor,
        (own, _) => own,
    }
}

fn own_class(nodes: &Sequence<'_>) -> Class {
    if cast(nodes).is_some() {
        return Class::Number;
    }
    let paths = nodes.iter().filter_map(|node| match node {
        NameNode::Path(path) => Some(path_class(path)),
        _ => None,
    });
    let is_pointer = nodes
        .iter()
        .any(|node| matches!(node, NameNode::Text(text) if text.contains('*')));
    let class = paths.max().unwrap_or(Class::Number);
    match class {
        Class::Builtin if is_pointer => Class::Helper,
        class => class,
    }
}

fn path_class(path: &[NameSegment<'_>]) -> Class {
    let Some(last) = path.last() else {
        return Class::Number;
    };
    let name = last.name();
    let digits = name.strip_prefix(['-', 'T']).unwrap_or(name);
    let is_lambda = matches!(last.kind, NameKind::Lambda(..)) || name.starts_with("'lambda");
    if is_lambda || matches!(name, "operator()" | "operator ()") {
        return Class::Functor;
    }
    if digits.starts_with(|c: char| c.is_ascii_digit()) || matches!(name, "true" | "false") {
        return Class::Number;
    }
    if HELPERS.contains(&name) {
        return Class::Helper;
    }
    if BUILTINS.contains(&name) {
        return Class::Builtin;
    }
    let ends = ["Op", "Ops", "_op", "_ops", "Kernel", "kernel"];
    if name.contains("unctor") || ends.iter().any(|end| name.ends_with(end)) {
        return Class::Functor;
    }
    Class::Type
}

/// The functor for which the function around the lambda `path` is instantiated: `F` of
/// `f<F>(int)::{lambda}`.
pub(super) fn functor_of<'n, 'a>(path: &'n [NameSegment<'a>]) -> Option<&'n Argument<'a>> {
    let last = path.last()?;
    if !matches!(last.kind, NameKind::Lambda(..)) {
        return None;
    }
    let mut arguments = path.iter().filter_map(|part| part.arguments.as_ref());
    let arguments = arguments.next_back()?;
    arguments.iter().find(|one| has_functor(&one.nodes))
}

fn has_functor(nodes: &Sequence<'_>) -> bool {
    nodes.iter().any(|node| match node {
        NameNode::Path(path) => {
            let arguments = path.iter().filter_map(|part| part.arguments.as_ref());
            path_class(path) == Class::Functor
                || arguments.flatten().any(|one| has_functor(&one.nodes))
        }
        _ => false,
    })
}

/// The value of a cast: `4` of `(int)4`, `true` of `(bool)1`.
pub(super) fn cast<'a>(nodes: &Sequence<'a>) -> Option<&'a str> {
    let [NameNode::Group(b'(', types), NameNode::Path(path)] = trimmed(nodes) else {
        return None;
    };
    let value = single(path)?;
    let is_number = value.starts_with(|c: char| c.is_ascii_digit() || "-'".contains(c));
    let [types] = types.as_slice() else {
        return None;
    };
    let is_bool =
        matches!(types.as_slice(), [NameNode::Path(path)] if single(path) == Some("bool"));
    is_number.then_some(match value {
        "0" if is_bool => "false",
        "1" if is_bool => "true",
        number => without_suffix(number),
    })
}

/// The number without its suffix: `3` of `3ul`.
pub(super) fn number<'a>(nodes: &Sequence<'a>) -> Option<&'a str> {
    let [NameNode::Path(path)] = trimmed(nodes) else {
        return None;
    };
    let number = without_suffix(single(path)?);
    let digits = number.strip_prefix('-').unwrap_or(number);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(number)
}

fn without_suffix(number: &str) -> &str {
    number.trim_end_matches(['u', 'U', 'l', 'L'])
}

/// The identifier, if the path has just one component.
fn single<'a>(path: &[NameSegment<'a>]) -> Option<&'a str> {
    let [part] = path else { return None };
    let is_bare = part.arguments.is_none() && part.parameters.is_none();
    match part.kind {
        NameKind::Name(name) if is_bare => Some(name),
        _ => None,
    }
}

fn trimmed<'n, 'a>(nodes: &'n Sequence<'a>) -> &'n [NameNode<'a>] {
    let is_space = |node: Option<&NameNode<'_>>| matches!(node, Some(NameNode::Text(text)) if text.trim().is_empty());
    let mut nodes = nodes.as_slice();
    if is_space(nodes.first()) {
        nodes = &nodes[1..];
    }
    if is_space(nodes.last()) {
        nodes = &nodes[..nodes.len() - 1];
    }
    nodes
}

/// Whether an argument after the first has the default value.
pub(super) fn is_default(nodes: &Sequence<'_>, owner_is_std: bool) -> bool {
    let [NameNode::Path(path)] = trimmed(nodes) else {
        return false;
    };
    let is_std = path.first().is_some_and(|part| part.name() == "std");
    match path.last().map(NameSegment::name) {
        Some("allocator" | "char_traits") => is_std,
        Some("less" | "hash" | "equal_to" | "default_delete") => is_std && owner_is_std,
        _ => false,
    }
}

/// Whether it is a class for characters: `basic_string<char, ...>`.
pub(super) fn is_of_char(part: &NameSegment<'_>) -> bool {
    let first = part.arguments.as_ref().and_then(|all| all.first());
    let nodes = first.map(|argument| trimmed(&argument.nodes));
    matches!(nodes, Some([NameNode::Path(path)]) if single(path) == Some("char"))
}
