//! Sizes of BPF maps, for tests of full maps: filling one of the default size takes tens of thousands
//! of threads or processes.

use std::str::FromStr;

use anyhow::{Context, Result};
use libbpf_rs::OpenObject;

/// A map, by its name in `bpf/maps.h`, with its number of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapEntries {
    map: String,
    entries: u32,
}

impl FromStr for MapEntries {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=');
        let (map, entries) = parts.ok_or_else(|| format!("'{text}' is not MAP=N"))?;
        match entries.parse() {
            Ok(entries) if entries > 0 => Ok(Self {
                map: map.to_owned(),
                entries,
            }),
            _ => Err(format!("'{entries}' is not a number of entries")),
        }
    }
}

impl MapEntries {
    /// Sets the size. Must be called before the object is loaded.
    pub(super) fn apply(&self, object: &mut OpenObject) -> Result<()> {
        let map = object.maps_mut().find(|map| *map.name() == *self.map);
        let mut map = map.with_context(|| format!("there is no map {}", self.map))?;
        map.set_max_entries(self.entries)
            .with_context(|| format!("cannot resize the map {}", self.map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_sizes_are_parsed() {
        let parsed = |text: &str| text.parse::<MapEntries>().map(|m| (m.map, m.entries)).ok();
        assert_eq!(parsed("threads=16"), Some(("threads".to_owned(), 16)));
        for wrong in ["threads", "threads=", "threads=0", "threads=-1", "=x"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
