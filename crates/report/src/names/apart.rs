//! Fits the names of a list to a width, with no two alike.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{Hash, Hasher};

use gpuprobe_model::text::width;

use super::elide;
use super::render::{NameShape, Spans, ranks, render};
use super::tree::{Sequence, parse};
use super::weight::{Class, classes};

/// Levels of detail beyond a simplified name, used where simplified names are equal.
const DETAILS: [(bool, bool); 4] = [(false, false), (true, false), (false, true), (true, true)];
/// Rounds in which names that are still equal are shortened at other places.
const ROUNDS: usize = 4;

/// Simplifies `names`, which are shown together, to at most `columns` columns each, or without a
/// limit. Different names stay different (in 12 columns or more): first template arguments are
/// omitted, those last that distinguish the names or name the computation, then characters; names
/// that are still equal get a number.
///
/// The names must be printable.
pub fn fit(names: &[&str], columns: Option<usize>) -> Vec<String> {
    shown_by(names, columns, |names, columns| {
        let shown = names.iter().map(|name| name.within(columns)).collect();
        let mut list = NameList::new(names, shown, columns);
        for group in list.alike() {
            list.by_arguments(&group);
        }
        list
    })
}

/// The same for lines that are not just names: only characters are omitted.
pub fn cut(lines: &[&str], columns: Option<usize>) -> Vec<String> {
    shown_by(lines, columns, |names, columns| {
        let shown = names.iter().map(|name| elide::middle(name.text, columns));
        let shown = shown.collect();
        let mut list = NameList::new(names, shown, columns);
        list.simplest = DETAILS.len();
        list
    })
}

fn shown_by<'a>(
    names: &[&'a str],
    columns: Option<usize>,
    list: impl FnOnce(Vec<KernelLabel<'a>>, usize) -> NameList<'a>,
) -> Vec<String> {
    // In order, so that a name is shown the same wherever it is in the list.
    let distinct: Vec<&str> = names
        .iter()
        .copied()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let read = distinct
        .iter()
        .map(|name| KernelLabel::read(name))
        .collect();
    let mut list = list(read, columns.unwrap_or(usize::MAX));
    for _ in 0..ROUNDS {
        let alike = list.alike();
        if alike.is_empty() {
            break;
        }
        for group in alike {
            list.by_characters(&group);
        }
    }
    list.by_numbers();
    let shown: HashMap<&str, &String> = distinct.iter().copied().zip(&list.shown).collect();
    let of = |name: &&str| shown.get(name).copied().cloned().unwrap_or_default();
    names.iter().map(of).collect()
}

struct KernelLabel<'a> {
    text: &'a str,
    nodes: Sequence<'a>,
    classes: Vec<(Class, usize)>,
}

impl<'a> KernelLabel<'a> {
    fn read(text: &'a str) -> Self {
        let (nodes, count) = parse(text);
        Self {
            text,
            classes: classes(&nodes, count),
            nodes,
        }
    }

    /// The whole name; beyond [`DETAILS`], unchanged.
    fn whole(&self, detail: usize) -> String {
        let text = match DETAILS.get(detail) {
            Some(_) => render(&self.nodes, shape(detail), None),
            None => self.text.to_owned(),
        };
        if text.is_empty() {
            self.text.to_owned()
        } else {
            text
        }
    }

    fn within(&self, columns: usize) -> String {
        self.within_by(0, columns, &self.classes)
    }

    /// The name in at most `columns`, without the arguments of the lowest classes.
    fn within_by(&self, detail: usize, columns: usize, classes: &[(Class, usize)]) -> String {
        let whole = self.whole(detail);
        if width(&whole) <= columns || detail >= DETAILS.len() {
            return elide::middle(&whole, columns);
        }
        let ranks = ranks(classes);
        let functors = classes.iter().filter(|(class, _)| *class >= Class::Functor);
        let most = classes.len() - functors.count();
        let mut text = whole;
        for hoist in [false, true] {
            let shown = |least| {
                let shape = NameShape {
                    ranks: &ranks,
                    least,
                    hoist,
                    ..shape(detail)
                };
                render(&self.nodes, shape, None)
            };
            text = shown(most);
            if width(&text) <= columns {
                let (mut from, mut enough) = (0, most);
                while from < enough {
                    let middle = usize::midpoint(from, enough);
                    let made = shown(middle);
                    if width(&made) <= columns {
                        (enough, text) = (middle, made);
                    } else {
                        from = middle + 1;
                    }
                }
                return text;
            }
        }
        elide::middle(&text, columns)
    }

    /// A number per argument, by index, for its text and its earlier occurrences.
    fn arguments(&self, detail: usize) -> Vec<u64> {
        let mut spans: Spans = vec![(0, 0); self.classes.len()];
        let text = render(&self.nodes, shape(detail), Some(&mut spans));
        let mut counts: HashMap<u64, usize> = HashMap::new();
        let number = |(begin, end): (usize, usize)| {
            let hash = |what: &dyn Fn(&mut DefaultHasher)| {
                let mut hasher = DefaultHasher::new();
                what(&mut hasher);
                hasher.finish()
            };
            let said = hash(&|hasher| text.get(begin..end).hash(hasher));
            let count = counts.entry(said).or_default();
            *count += 1;
            hash(&|hasher| (said, *count).hash(hasher))
        };
        spans.into_iter().map(number).collect()
    }
}

fn shape(detail: usize) -> NameShape<'static> {
    let (namespaces, parameters) = DETAILS.get(detail).copied().unwrap_or((true, true));
    NameShape {
        namespaces,
        parameters,
        ..NameShape::SIMPLE
    }
}

struct NameList<'a> {
    names: Vec<KernelLabel<'a>>,
    shown: Vec<String>,
    columns: usize,
    /// Index of the lowest detail in [`DETAILS`] that is used.
    simplest: usize,
}

impl<'a> NameList<'a> {
    fn new(names: Vec<KernelLabel<'a>>, shown: Vec<String>, columns: usize) -> Self {
        Self {
            names,
            shown,
            columns,
            simplest: 0,
        }
    }

    /// Groups of names that are shown the same.
    fn alike(&self) -> Vec<Vec<usize>> {
        let mut groups: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, shown) in self.shown.iter().enumerate() {
            groups.entry(shown).or_default().push(index);
        }
        let mut groups: Vec<_> = groups.into_values().filter(|one| one.len() > 1).collect();
        groups.sort_unstable();
        groups
    }

    /// The lowest detail with which all names of `group` differ, and the names with it.
    fn different(&self, group: &[usize]) -> (usize, Vec<String>) {
        let whole = |detail: usize| -> Vec<String> {
            let names = group.iter().map(|&index| self.names[index].whole(detail));
            names.collect()
        };
        for detail in self.simplest..DETAILS.len() {
            let texts = whole(detail);
            if texts.iter().collect::<HashSet<_>>().len() == texts.len() {
                return (detail, texts);
            }
        }
        (DETAILS.len(), whole(DETAILS.len()))
    }

    /// Keeps the arguments in which the names differ.
    fn by_arguments(&mut self, group: &[usize]) {
        let (detail, _) = self.different(group);
        let arguments: Vec<_> = group
            .iter()
            .map(|&index| self.names[index].arguments(detail))
            .collect();
        let mut counts: HashMap<u64, usize> = HashMap::new();
        for said in &arguments {
            for one in said.iter().collect::<HashSet<_>>() {
                *counts.entry(*one).or_default() += 1;
            }
        }
        for (&index, said) in group.iter().zip(&arguments) {
            let name = &self.names[index];
            let mut classes = name.classes.clone();
            for ((class, _), one) in classes.iter_mut().zip(said) {
                if counts.get(one).is_none_or(|&count| count < group.len()) {
                    *class = Class::Different;
                }
            }
            self.shown[index] = name.within_by(detail, self.columns, &classes);
        }
    }

    /// Shortens the names so that the characters in which they differ stay.
    fn by_characters(&mut self, group: &[usize]) {
        let (_, texts) = self.different(group);
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let made = elide::windows(&texts, self.columns);
        for (&index, text) in group.iter().zip(made) {
            self.shown[index] = text;
        }
    }

    /// Numbers the names that are still equal, from 2 on.
    fn by_numbers(&mut self) {
        let groups = self.alike();
        let mut taken: HashSet<String> = self.shown.iter().cloned().collect();
        let mut next: HashMap<String, usize> = HashMap::new();
        for index in groups
            .into_iter()
            .flat_map(|group| group.into_iter().skip(1))
        {
            let base = self.shown[index].clone();
            let number = next.entry(base.clone()).or_insert(2);
            loop {
                let suffix = format!("~{number}");
                *number += 1;
                let room = self.columns.saturating_sub(suffix.len());
                let text = elide::before(&base, room).to_owned() + &suffix;
                if width(&text) > self.columns {
                    // There is no room for numbers.
                    break;
                }
                if taken.insert(text.clone()) {
                    self.shown[index] = text;
                    break;
                }
            }
        }
    }
}
