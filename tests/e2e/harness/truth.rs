//! A workload's own totals.

use std::array;
use std::collections::{BTreeMap, HashMap};
use std::ops::{Add, Sub};

use serde_json::{Value, json};

/// Kinds of memory, by their names in reports.
const KINDS: [&str; 11] = [
    "device",
    "pitched",
    "array",
    "managed",
    "pinned",
    "registered",
    "async",
    "vmm",
    "static",
    "graph",
    "imported",
];

/// Live memory of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) bytes: u64,
    pub(crate) allocations: u64,
}

impl Add for Held {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            allocations: self.allocations + other.allocations,
        }
    }
}

impl Sub for Held {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            bytes: self.bytes - other.bytes,
            allocations: self.allocations - other.allocations,
        }
    }
}

macro_rules! truth {
    ($($field:ident)*) => {
        /// Calls, and live memory, since a workload started.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Truth {
            $(pub(crate) $field: u64,)*
            /// In the order of [`KINDS`].
            pub(crate) kinds: [Held; KINDS.len()],
        }

        impl Truth {
            fn of(pairs: &HashMap<&str, &str>, text: &str) -> Self {
                let number = |name: &str| {
                    let value = pairs.get(name).and_then(|value| value.parse().ok());
                    value.unwrap_or_else(|| panic!("no {name} in '{text}'"))
                };
                Self {
                    $($field: number(stringify!($field)),)*
                    kinds: KINDS.map(|kind| Held {
                        bytes: number(&format!("{kind}_bytes")),
                        allocations: number(&format!("{kind}_live")),
                    }),
                }
            }
        }

        impl Add for Truth {
            type Output = Self;

            fn add(self, other: Self) -> Self {
                Self {
                    $($field: self.$field + other.$field,)*
                    kinds: array::from_fn(|kind| self.kinds[kind] + other.kinds[kind]),
                }
            }
        }

        /// The difference to `other`, if nothing that was live then has been freed.
        impl Sub for Truth {
            type Output = Self;

            fn sub(self, other: Self) -> Self {
                Self {
                    $($field: self.$field - other.$field,)*
                    kinds: array::from_fn(|kind| self.kinds[kind] - other.kinds[kind]),
                }
            }
        }
    };
}

truth! {
    live bytes allocs frees failed nullfrees
    launches captured graph_launches copies copy_bytes sets
}

impl Truth {
    /// Live memory of a kind.
    pub(crate) fn kind(&self, name: &str) -> Held {
        let kind = KINDS.iter().position(|kind| *kind == name);
        self.kinds[kind.expect("a kind of memory")]
    }

    /// Live host memory: neither GPU memory nor shared memory.
    pub(crate) fn host(&self) -> Held {
        let all = self.kinds.into_iter().fold(Held::default(), Held::add);
        let imported = self.kind("imported");
        Held {
            bytes: all.bytes - imported.bytes - self.bytes,
            allocations: all.allocations - imported.allocations - self.live,
        }
    }

    /// The kinds with live memory, as reports have them.
    pub(crate) fn kinds(&self) -> Value {
        let live = KINDS.into_iter().zip(self.kinds);
        let live = live.filter(|(_, held)| held.allocations > 0);
        let entry = |held: Held| json!({"bytes": held.bytes, "allocations": held.allocations});
        json!(
            live.map(|(kind, held)| (kind, entry(held)))
                .collect::<BTreeMap<_, _>>()
        )
    }

    /// Parses `live=1 bytes=2 ...`, anywhere in `text`.
    pub(crate) fn parse(text: &str) -> Self {
        let words = text.split_whitespace();
        Self::of(&words.filter_map(|w| w.split_once('=')).collect(), text)
    }

    /// Parses the line `done {"pid":1,"live":1,...}`.
    pub(crate) fn parse_done(line: &str) -> Self {
        let inside = line.trim_start_matches("done {").trim_end_matches('}');
        let pairs = inside.split(',').filter_map(|pair| pair.split_once(':'));
        let pairs = pairs.map(|(name, value)| (name.trim_matches('"'), value));
        Self::of(&pairs.collect(), line)
    }
}
