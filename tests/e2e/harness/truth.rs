//! What a workload says that it has done.

use std::collections::HashMap;

macro_rules! truth {
    ($($field:ident)*) => {
        /// Calls, and what lives, since a workload began.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Truth {
            $(pub(crate) $field: u64,)*
        }

        impl Truth {
            fn of(pairs: &HashMap<&str, &str>, text: &str) -> Self {
                let number = |name: &str| {
                    let value = pairs.get(name).and_then(|value| value.parse().ok());
                    value.unwrap_or_else(|| panic!("no {name} in '{text}'"))
                };
                Self {
                    $($field: number(stringify!($field)),)*
                }
            }
        }

        impl std::ops::Add for Truth {
            type Output = Self;

            fn add(self, other: Self) -> Self {
                Self {
                    $($field: self.$field + other.$field,)*
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
    /// From `live=1 bytes=2 ...`, wherever that is in `text`.
    pub(crate) fn parse(text: &str) -> Self {
        let words = text.split_whitespace();
        Self::of(&words.filter_map(|w| w.split_once('=')).collect(), text)
    }

    /// From the line `done {"pid":1,"live":1,...}`.
    pub(super) fn parse_done(line: &str) -> Self {
        let inside = line.trim_start_matches("done {").trim_end_matches('}');
        let pairs = inside.split(',').filter_map(|pair| pair.split_once(':'));
        let pairs = pairs.map(|(name, value)| (name.trim_matches('"'), value));
        Self::of(&pairs.collect(), line)
    }
}
