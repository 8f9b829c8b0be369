//! Memory by call stack, as a profile.

use std::collections::HashMap;
use std::rc::Rc;

use anyhow::Result;

use super::listing::plain_name;
use super::tracker::{Allocation, Change, Part, Tracker};
use super::{Origin, Selection, Visitor, pass};
use crate::profile::{Amount, Frame, Profile, Sample, Weight, shown};
use gpuprobe_model::text::size;
use gpuprobe_recording::{Database, Resolver, Session, ids, kinds};

/// What allocations are told apart by, before anything is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    process: i64,
    chain: Option<i64>,
    function: Option<i64>,
    kind: u8,
}

/// Live and ever allocated.
type Amounts = HashMap<Key, (Amount, Amount)>;

/// Adds up what is allocated.
struct Totals {
    amounts: Amounts,
    host: bool,
    /// Memory of the host that is not wanted.
    left_out: Amount,
}

impl Totals {
    fn key(&mut self, process: i64, kind: u8, origin: Origin) -> Option<Key> {
        let is_wanted = self.host || !kinds::of_id(kind).is_host;
        is_wanted.then_some(Key {
            process,
            chain: origin.chain,
            function: origin.function,
            kind,
        })
    }
}

impl Visitor for Totals {
    fn change(&mut self, change: &Change, _: &Tracker) -> Result<()> {
        if let Some(Part { bytes, origin, .. }) = change.allocated {
            let one = Amount {
                bytes,
                allocations: 1,
            };
            match self.key(change.process, change.kind, origin) {
                Some(key) => self.amounts.entry(key).or_default().1.merge(one),
                None => self.left_out.merge(one),
            }
        }
        Ok(())
    }

    fn can_restart(&self) -> bool {
        true
    }

    fn restart(&mut self) -> Result<()> {
        self.amounts.clear();
        self.left_out = Amount::default();
        Ok(())
    }
}

/// Makes the profile of a file: live at the end or at the peak, by `weight`, and ever allocated.
///
/// # Errors
/// Those of the file.
pub fn profile(
    database: &Database,
    session: &Session,
    selection: &Selection,
    weight: Weight,
    full_stacks: bool,
) -> Result<Profile> {
    let mut totals = Totals {
        amounts: HashMap::new(),
        host: selection.host,
        left_out: Amount::default(),
    };
    let tracker = pass(database, selection, &mut totals)?;
    let mut live_left_out = Amount::default();
    let mut take = |process: i64, kind: u8, allocation: &Allocation| {
        let one = Amount {
            bytes: allocation.bytes,
            allocations: 1,
        };
        match totals.key(process, kind, allocation.origin) {
            Some(key) => totals.amounts.entry(key).or_default().0.merge(one),
            None => live_left_out.merge(one),
        }
    };
    let mut time_ns = tracker.last_ns();
    if weight == Weight::Peak {
        time_ns = tracker.first_ns().map(|_| tracker.peak().time_ns);
        tracker
            .at_peak()
            .for_each(|(process, place, allocation)| take(process, place.kind, allocation));
    } else {
        tracker
            .never_freed()
            .for_each(|(process, place, allocation)| take(process, place.kind, allocation));
    }
    let left_out = match weight {
        Weight::Total => totals.left_out,
        Weight::End | Weight::Peak => live_left_out,
    };
    let left_out = (left_out.allocations > 0)
        .then(|| format!("{} of the host (--host shows it)", size(left_out.bytes)));
    let start_ns = session.start_epoch_ns;
    Ok(Profile {
        samples: samples(
            totals.amounts,
            &Resolver::new(database)?,
            session,
            full_stacks,
        ),
        at_peak: weight == Weight::Peak,
        time_ns: time_ns.and_then(|ns| ns.checked_add(start_ns?)),
        left_out: left_out.into_iter().collect(),
    })
}

/// Exports may have a chain for every call: those with equal frames are one sample.
fn samples(
    amounts: Amounts,
    resolver: &Resolver<'_>,
    session: &Session,
    full: bool,
) -> Vec<Sample> {
    let mut amounts: Vec<_> = amounts.into_iter().collect();
    amounts.sort_by_key(|(key, _)| *key);
    let mut names: HashMap<u32, Rc<str>> = HashMap::new();
    let mut places: HashMap<(u32, Vec<Frame>), usize> = HashMap::new();
    let mut samples: Vec<Sample> = Vec::new();
    for (key, (live, total)) in amounts {
        let pid = ids::pid(key.process);
        let process = names.entry(pid).or_insert_with(|| {
            let name = session.processes.get(&pid);
            // Exports have the path of the program.
            let name = name.map(|name| name.rsplit('/').next().unwrap_or(name));
            name.map_or_else(|| format!("pid {pid}").into(), Into::into)
        });
        let called = key.function.map(|id| resolver.string(id));
        let called = called.as_deref().map(plain_name);
        let called = called.unwrap_or(kinds::of_id(key.kind).short);
        let frames = key.chain.map(|chain| resolver.stack(chain));
        let frames = frames.iter().flat_map(|stack| stack.iter());
        let frames = frames.map(|frame| Frame {
            function: Rc::clone(&frame.function),
            module: Rc::clone(&frame.module),
            file: frame.file.clone(),
            line: frame.line,
            address: 0,
            inlined: frame.inlined,
        });
        let frames = shown(frames.collect(), called, full);
        let place = places.entry((pid, frames.clone())).or_insert(samples.len());
        if let Some(known) = samples.get_mut(*place) {
            known.live.merge(live);
            known.total.merge(total);
            continue;
        }
        samples.push(Sample {
            process: Rc::clone(process),
            pid,
            frames,
            live,
            total,
        });
    }
    samples
}
