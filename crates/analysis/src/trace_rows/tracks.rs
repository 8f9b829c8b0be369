//! Assigns events to tracks.
//!
//! A thread is a track of its process. The streams of a process on a GPU are tracks of a group that
//! viewers show like a process. An event that neither follows nor nests in the events of its track
//! gets an additional one: viewers cannot show it otherwise.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use anyhow::Result;
use serde_json::{Map, Value};

use super::{TraceRow, Track, Write};
use gpuprobe_recording::row::integer;
use gpuprobe_recording::{Database, Resolver, Session, ids};

/// Above all process and thread ids.
const FIRST_GROUP: u64 = 1 << 23;
const FIRST_TRACK: u64 = 1 << 24;

/// Owner of a track, in the order in which viewers show the tracks of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum TrackOwner {
    /// A stream: process, device, context, stream id.
    Stream(i64, i64, i64, i64),
    /// The thread with this global id: its NVTX marks and ranges or, if true, its calls.
    Thread(i64, bool),
    /// Tracing overhead in the thread with this global id.
    Overhead(i64),
}

/// Assigns events to tracks of threads and streams.
pub(super) struct Tracks<'a> {
    session: &'a Session,
    /// Names of threads, by global id.
    threads: HashMap<i64, Arc<str>>,
    /// The default stream of a context, by process and context.
    default_streams: HashMap<(u32, i64), i64>,
    /// Groups of streams, by process and device.
    groups: BTreeMap<(i64, i64), u64>,
    /// The tracks, and the end times of their open events, innermost last.
    lanes: BTreeMap<TrackOwner, Vec<(Track, Vec<i64>)>>,
    next: u64,
    /// Calls that are not on the first track of their thread, by thread and start.
    moved: HashMap<(i64, i64), Track>,
}

impl<'a> Tracks<'a> {
    pub(super) fn new(
        database: &Database,
        session: &'a Session,
        resolver: &Resolver<'_>,
    ) -> Result<Self> {
        let mut threads = HashMap::new();
        database.each("ThreadNames", "globalTid, nameId", "", |row| {
            let named = integer(row, 0).zip(integer(row, 1));
            threads.extend(named.map(|(thread, name)| (thread, resolver.string(name))));
        })?;
        let mut default_streams = HashMap::new();
        for (table, stream) in [
            ("TARGET_INFO_CUDA_CONTEXT_INFO", "nullStreamId"),
            ("TARGET_INFO_CUDA_NULL_STREAM", "streamId"),
        ] {
            let columns = format!("processId, contextId, {stream}");
            database.each(table, &columns, "", |row| {
                let process = integer(row, 0).and_then(|pid| u32::try_from(pid).ok());
                let key = process.zip(integer(row, 1));
                default_streams.extend(key.zip(integer(row, 2)));
            })?;
        }
        Ok(Self {
            session,
            threads,
            default_streams,
            groups: BTreeMap::new(),
            lanes: BTreeMap::new(),
            next: FIRST_TRACK,
            moved: HashMap::new(),
        })
    }

    /// The group for the work of a process on a device.
    pub(super) fn group(&mut self, process: i64, device: i64) -> u64 {
        let next = FIRST_GROUP + self.groups.len() as u64;
        *self.groups.entry((process, device)).or_insert(next)
    }

    /// The track for an event that begins at `start`; later calls must not have an earlier start.
    /// Work of a stream never nests in other work.
    pub(super) fn place(&mut self, of: TrackOwner, (start, end): (i64, i64)) -> Track {
        let pid = match of {
            TrackOwner::Stream(process, device, ..) => self.group(process, device),
            TrackOwner::Thread(thread, _) | TrackOwner::Overhead(thread) => ids::pid(thread).into(),
        };
        let nests = !matches!(of, TrackOwner::Stream(..));
        let lanes = self.lanes.entry(of).or_default();
        let free = lanes.iter_mut().position(|(_, open)| {
            while open.last().is_some_and(|last| *last <= start) {
                open.pop();
            }
            open.last().is_none_or(|last| nests && *last >= end)
        });
        let place = free.unwrap_or(lanes.len());
        if free.is_none() {
            let tid = match of {
                TrackOwner::Thread(thread, true) if place == 0 => ids::tid(thread).into(),
                _ => {
                    self.next += 1;
                    self.next
                }
            };
            lanes.push((Track { pid, tid }, Vec::new()));
        }
        let (track, open) = &mut lanes[place];
        open.push(end);
        if let TrackOwner::Thread(thread, true) = of
            && place > 0
        {
            self.moved.insert((thread, start), *track);
        }
        *track
    }

    /// The track of the call that `thread` began at `start`.
    pub(super) fn of_call(&self, thread: i64, start: i64) -> Track {
        let first = Track {
            pid: u64::from(ids::pid(thread)),
            tid: u64::from(ids::tid(thread)),
        };
        self.moved.get(&(thread, start)).copied().unwrap_or(first)
    }

    /// Name of a process; viewers add the id.
    fn process(&self, pid: u32) -> &str {
        let name = self.session.processes.get(&pid).map(String::as_str);
        name.filter(|name| !name.is_empty()).unwrap_or("process")
    }

    fn name(&self, of: TrackOwner) -> String {
        let thread = |thread: i64| {
            let name = self.threads.get(&thread).map(|name| &**name);
            name.filter(|name| !name.is_empty()).unwrap_or("thread")
        };
        match of {
            TrackOwner::Thread(id, true) => thread(id).to_owned(),
            TrackOwner::Thread(id, false) => format!("NVTX of {} {}", thread(id), ids::tid(id)),
            TrackOwner::Overhead(id) => {
                format!("profiler overhead in {} {}", thread(id), ids::tid(id))
            }
            TrackOwner::Stream(process, _, context, stream) => {
                let default = self.default_streams.get(&(ids::pid(process), context));
                match default == Some(&stream) {
                    true => format!("stream {stream}, default of context {context}"),
                    false => format!("stream {stream} of context {context}"),
                }
            }
        }
    }

    /// Writes the names of tracks and their order: processes before GPUs.
    pub(super) fn describe(&self, write: &mut Write<'_>) -> Result<()> {
        let mut processes: BTreeMap<u64, String> = BTreeMap::new();
        for of in self.lanes.keys() {
            if let TrackOwner::Thread(thread, _) | TrackOwner::Overhead(thread) = *of {
                let pid = ids::pid(thread);
                processes.insert(pid.into(), self.process(pid).to_owned());
            }
        }
        for ((process, device), group) in &self.groups {
            let gpu = self.session.gpus.get(device).filter(|gpu| !gpu.is_empty());
            let gpu = gpu.map_or(String::new(), |gpu| format!(" {gpu}"));
            let pid = ids::pid(*process);
            let name = format!("gpu_{device}{gpu} of {} {pid}", self.process(pid));
            processes.insert(*group, name);
        }
        for (place, (pid, name)) in processes.into_iter().enumerate() {
            let place = place + if pid < FIRST_GROUP { 0 } else { 10_000 };
            describe(write, "process", Track { pid, tid: 0 }, (name, place))?;
        }
        let lanes = self.lanes.iter();
        let lanes = lanes.flat_map(|(of, lanes)| lanes.iter().enumerate().map(|one| (*of, one)));
        for (place, (of, (index, (track, _)))) in (1..).zip(lanes) {
            let name = match index {
                0 => self.name(of),
                _ => format!("{}, at the same time ({})", self.name(of), index + 1),
            };
            describe(write, "thread", *track, (name, place))?;
        }
        Ok(())
    }
}

/// Writes the name of a process or thread, and its place among others.
fn describe(
    write: &mut Write<'_>,
    what: &str,
    track: Track,
    (name, place): (String, usize),
) -> Result<()> {
    for (key, value) in [("name", Value::from(name)), ("sort_index", place.into())] {
        let name = format!("{what}_{key}");
        write(&TraceRow {
            args: Map::from_iter([(key.to_owned(), value)]),
            ..TraceRow::new(&name, "__metadata", "M", track, 0)
        })?;
    }
    Ok(())
}
