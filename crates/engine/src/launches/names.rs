//! Kernel names of one process.

use std::sync::Arc;

use hashbrown::HashMap;

/// Kernel handle, and the epoch in which it has this meaning.
pub(super) type Place = (u64, u16);

/// Bytes per entry besides the name.
const ENTRY: usize = 64;

/// Kernel names by handle and epoch.
#[derive(Clone, Debug, Default)]
pub(super) struct NamesByHandle {
    names: HashMap<Place, Arc<str>>,
    bytes: usize,
}

impl NamesByHandle {
    pub(super) fn get(&self, place: &Place) -> Option<&Arc<str>> {
        self.names.get(place)
    }

    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        self.names.keys()
    }

    /// Approximate memory use, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn insert(&mut self, place: Place, name: Arc<str>) {
        self.bytes += ENTRY + name.len();
        if let Some(old) = self.names.insert(place, name) {
            self.bytes -= ENTRY + old.len();
        }
    }

    pub(super) fn remove(&mut self, place: &Place) {
        if let Some(old) = self.names.remove(place) {
            self.bytes -= ENTRY + old.len();
        }
    }

    /// Keeps the names for which `wanted` returns true.
    pub(super) fn retain(&mut self, wanted: impl Fn(&Place) -> bool) {
        let bytes = &mut self.bytes;
        self.names.retain(|place, name| {
            let keep = wanted(place);
            if !keep {
                *bytes -= ENTRY + name.len();
            }
            keep
        });
        self.names.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_names_take_no_memory() {
        let mut names = NamesByHandle::default();
        for handle in 0..10 {
            names.insert((handle, 0), "name".repeat(10).into());
        }
        names.insert((3, 0), "other".into());
        assert_eq!(names.bytes(), 9 * (ENTRY + 40) + ENTRY + 5);
        names.remove(&(3, 0));
        names.remove(&(3, 0));
        assert_eq!(names.bytes(), 9 * (ENTRY + 40));
        names.retain(|(handle, _)| *handle == 7);
        assert_eq!(names.bytes(), ENTRY + 40);
        assert_eq!(names.get(&(7, 0)).map(|name| name.len()), Some(40));
    }
}
