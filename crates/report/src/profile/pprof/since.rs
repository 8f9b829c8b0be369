//! Profiles of what was counted between two of them, for servers that add profiles up.

use std::collections::HashMap;
use std::io::{self, Read};

use flate2::read::GzDecoder;
use prost::Message;

use super::proto::{Proto, SampleProto};

/// Types of values that count since the start.
const COUNTED: [&str; 3] = ["alloc_space", "alloc_objects", "launches"];
/// Types of values that are left out: part of another.
const LEFT_OUT: [&str; 1] = ["captured"];
/// Maximum bytes of an unpacked profile.
const MAX_BYTES: u64 = 64 << 20;

/// Reads a message that [`super::pack`] has written.
///
/// # Errors
/// Returns an error if it is not one, or larger than 64 MiB.
pub fn unpack(bytes: &[u8]) -> io::Result<Proto> {
    let mut unpacked = Vec::new();
    GzDecoder::new(bytes)
        .take(MAX_BYTES)
        .read_to_end(&mut unpacked)?;
    Proto::decode(&unpacked[..]).map_err(io::Error::other)
}

/// Counts up to a profile, by sample.
#[derive(Clone, Debug, Default)]
pub struct CountedSince {
    values: HashMap<SampleKey, Vec<i64>>,
}

/// Functions, lines and labels of a sample.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SampleKey {
    pid: i64,
    text: String,
}

impl CountedSince {
    /// Takes the counts that are in `known` out of `profile`, and returns its own. Without `known`, nothing has been
    /// counted. Samples without a value are dropped.
    ///
    /// A function's name may be found later than the function: what a process counted under keys that are gone is taken
    /// out of its new keys, so that the sums of each process are exact.
    pub fn take(profile: &mut Proto, known: Option<&Self>) -> Self {
        let types = profile.sample_type.iter();
        let types: Vec<_> = types
            .map(|one| text(profile, one.kind).to_owned())
            .collect();
        let counted: Vec<_> = types.iter().map(|one| COUNTED.contains(&&**one)).collect();
        let keys = keys(profile);
        let mut all = Self::default();
        for (key, sample) in keys.iter().zip(&profile.sample) {
            let sum = all.values.entry(key.clone()).or_default();
            sum.resize(types.len(), 0);
            let pairs = sum.iter_mut().zip(&sample.value);
            pairs.for_each(|(sum, value)| *sum = sum.saturating_add(*value));
        }
        let mut left = known.map(|known| Credit::of(known, &all));
        for (key, sample) in keys.iter().zip(&mut profile.sample) {
            let places = sample.value.iter_mut().zip(&counted).enumerate();
            for (place, (value, _)) in places.filter(|(_, (_, counted))| **counted) {
                match &mut left {
                    Some(left) => *value -= left.claim(key, place, *value),
                    None => *value = 0,
                }
            }
        }
        leave_out(profile, &types);
        profile
            .sample
            .retain(|one| one.value.iter().any(|value| *value != 0));
        all
    }
}

/// Counts that are still to be taken out.
struct Credit {
    by_key: HashMap<SampleKey, Vec<i64>>,
    /// Of keys that are gone, by process.
    gone: HashMap<i64, Vec<i64>>,
}

impl Credit {
    fn of(known: &CountedSince, now: &CountedSince) -> Self {
        let mut credit = Self {
            by_key: HashMap::new(),
            gone: HashMap::new(),
        };
        for (key, values) in &known.values {
            match now.values.get(key) {
                // Less than before: another process with the same id.
                Some(newer) => {
                    let pairs = values.iter().zip(newer);
                    let kept = pairs.map(|(old, new)| if old > new { 0 } else { *old });
                    credit.by_key.insert(key.clone(), kept.collect());
                }
                None => {
                    let sum = credit.gone.entry(key.pid).or_default();
                    sum.resize(values.len(), 0);
                    let pairs = sum.iter_mut().zip(values);
                    pairs.for_each(|(sum, value)| *sum = sum.saturating_add(*value));
                }
            }
        }
        credit
    }

    /// The part of `value` that was counted before.
    fn claim(&mut self, key: &SampleKey, place: usize, value: i64) -> i64 {
        let known = self.by_key.get_mut(key);
        let from = known.or_else(|| self.gone.get_mut(&key.pid));
        let Some(left) = from.and_then(|values| values.get_mut(place)) else {
            return 0;
        };
        let claimed = value.min(*left);
        *left -= claimed;
        claimed
    }
}

fn text(profile: &Proto, index: i64) -> &str {
    let index = usize::try_from(index).ok();
    let text = index.and_then(|index| profile.string_table.get(index));
    text.map_or("", String::as_str)
}

/// The key of each sample.
fn keys(profile: &Proto) -> Vec<SampleKey> {
    let functions: HashMap<u64, &str> = profile
        .function
        .iter()
        .map(|one| (one.id, text(profile, one.name)))
        .collect();
    let lines = |location: &super::LocationProto| {
        let name = |id: &u64| functions.get(id).copied().unwrap_or_default();
        let lines = location.line.iter();
        lines
            .map(|line| format!("{}:{}\n", name(&line.function_id), line.line))
            .collect::<String>()
    };
    let locations: HashMap<u64, String> = profile
        .location
        .iter()
        .map(|one| (one.id, lines(one)))
        .collect();
    let key = |sample: &SampleProto| {
        let labels = sample.label.iter();
        let is_pid = |key| text(profile, key) == "pid";
        let pid = labels.clone().find(|label| is_pid(label.key));
        let frames = sample.location_id.iter().filter_map(|id| locations.get(id));
        let mut key: String = frames.map(String::as_str).collect();
        for label in labels {
            key += text(profile, label.key);
            key += text(profile, label.str);
            key.push('\n');
        }
        SampleKey {
            pid: pid.map_or(0, |label| label.num),
            text: key,
        }
    };
    profile.sample.iter().map(key).collect()
}

/// Removes the values of [`LEFT_OUT`].
fn leave_out(profile: &mut Proto, types: &[String]) {
    let is_kept = |place: usize| !LEFT_OUT.contains(&&*types[place]);
    let mut place = 0..types.len();
    profile
        .sample_type
        .retain(|_| place.next().is_some_and(is_kept));
    for sample in &mut profile.sample {
        let mut place = 0..types.len();
        sample.value.retain(|_| place.next().is_some_and(is_kept));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::proto::{LocationProto, PprofFunction, PprofLabel, PprofLine, ValueType};
    use super::super::{Builder, pack};
    use super::*;

    /// A profile of launches and bytes in use, with a sample for each process, function and values.
    fn profile(samples: &[(i64, &str, [i64; 3])]) -> Proto {
        let types = [
            ("launches", "count"),
            ("captured", "count"),
            ("inuse_space", "bytes"),
        ];
        let mut builder = Builder::of_types(&types);
        for ((pid, name, values), id) in samples.iter().zip(1..) {
            let name = builder.string(name);
            let key = builder.string("pid");
            builder.proto.function.push(PprofFunction {
                id,
                name,
                ..PprofFunction::default()
            });
            builder.proto.location.push(LocationProto {
                id,
                line: vec![PprofLine {
                    function_id: id,
                    line: 0,
                }],
                ..LocationProto::default()
            });
            builder.proto.sample.push(SampleProto {
                location_id: vec![id],
                value: values.to_vec(),
                label: vec![PprofLabel {
                    key,
                    str: 0,
                    num: *pid,
                }],
            });
        }
        builder.proto
    }

    fn values(profile: &Proto) -> Vec<Vec<i64>> {
        let samples = profile.sample.iter();
        samples.map(|sample| sample.value.clone()).collect()
    }

    #[test]
    fn only_what_is_new_is_counted() {
        let mut first = profile(&[(1, "a", [5, 3, 100]), (1, "b", [2, 0, 0])]);
        let counted = CountedSince::take(&mut first, Some(&CountedSince::default()));
        assert_eq!(values(&first), [[5, 100], [2, 0]]);
        let named =
            |one: &ValueType| first.string_table[usize::try_from(one.kind).unwrap()].clone();
        let types: Vec<_> = first.sample_type.iter().map(named).collect();
        assert_eq!(types, ["launches", "inuse_space"]);
        let mut second = profile(&[(1, "a", [7, 3, 50]), (1, "b", [2, 0, 0])]);
        CountedSince::take(&mut second, Some(&counted));
        assert_eq!(values(&second), [[2, 50]], "without samples of nothing");
        // The process before this one has pushed what was counted, up to nobody knows when.
        let mut again = profile(&[(1, "a", [9, 3, 50]), (1, "b", [3, 0, 0])]);
        CountedSince::take(&mut again, None);
        assert_eq!(values(&again), [[0, 50]]);
    }

    #[test]
    fn sums_stay_exact_when_a_name_is_found_late_and_when_an_id_is_reused() {
        let mut first = profile(&[(1, "?", [5, 0, 0]), (2, "?", [4, 0, 0])]);
        let counted = CountedSince::take(&mut first, Some(&CountedSince::default()));
        let mut named = profile(&[
            (1, "a", [3, 0, 0]),
            (1, "b", [4, 0, 0]),
            (2, "?", [4, 0, 0]),
        ]);
        CountedSince::take(&mut named, Some(&counted));
        assert_eq!(values(&named), [[2, 0]]);
        let mut other = profile(&[(2, "?", [1, 0, 0])]);
        CountedSince::take(&mut other, Some(&counted));
        assert_eq!(values(&other), [[1, 0]]);
    }

    #[test]
    fn messages_are_read_again() {
        let profile = profile(&[(1, "a", [5, 3, 100])]);
        let mut packed = Vec::new();
        pack(&profile, &mut packed).unwrap();
        assert_eq!(unpack(&packed).unwrap(), profile);
        assert!(unpack(&packed[..20]).is_err());
        assert!(unpack(b"").is_err());
    }
}
