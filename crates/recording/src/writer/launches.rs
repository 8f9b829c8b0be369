//! Launches: how often each kernel was launched, and, if they were sent, single ones.

use std::collections::{BTreeMap, HashMap, HashSet};

use rusqlite::{Connection, params};

use super::insert::Insert;
use crate::ids::global_pid;
use gpuprobe_cuda::Op;
use gpuprobe_engine as state;
use gpuprobe_model::abi::RawLaunchKey;
use gpuprobe_model::event::{Call, Kernel, Launch};
use gpuprobe_stacks::symbols;

/// Process, handle and epoch: what a name belongs to.
type Handle = (u32, u64, u16);

fn handle_of(key: &RawLaunchKey) -> Handle {
    (key.process, key.handle, key.epoch)
}

/// Something that was launched, which has a row of its own.
#[derive(Debug)]
struct Launched {
    /// By which function: row of the function table.
    row: u16,
    id: i64,
    mangled: Option<String>,
}

/// Writes launches.
pub(super) struct Launches<'c> {
    connection: &'c Connection,
    counts: Insert<'c>,
    single: Insert<'c>,
    launched: Insert<'c>,
    known: HashMap<Handle, Vec<Launched>>,
    last_id: i64,
    /// Processes in which names found through handles turned out not to be believed.
    distrusted: HashSet<u32>,
    /// Calls that the ledger was told of, which are launches too, by thread and start: number and
    /// row.
    told: BTreeMap<(u32, u64), (i64, i64)>,
    /// Launches were counted since they were last written.
    is_counted: bool,
}

/// The name for people: of a handle, if nothing names it.
fn shown(mangled: Option<&str>, handle: u64) -> String {
    mangled.map_or_else(|| format!("{handle:#x}"), symbols::demangle)
}

impl<'c> Launches<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        let into = |table| Insert::into(connection, table);
        Self {
            connection,
            counts: into("GPUPROBE_LAUNCH_COUNTS"),
            single: into("GPUPROBE_LAUNCHES"),
            launched: into("GPUPROBE_LAUNCHED"),
            known: HashMap::new(),
            last_id: 0,
            distrusted: HashSet::new(),
            told: BTreeMap::new(),
            is_counted: false,
        }
    }

    /// Counts are known.
    pub(super) fn counted(&mut self) {
        self.is_counted = true;
    }

    /// The ledger was told of `call`, which has this number and this row; the launch that it is may
    /// come too.
    pub(super) fn told(&mut self, call: &Call, entered: (i64, i64)) {
        if call.function.op == Op::GraphLaunch {
            self.told.insert((call.tid, call.start_ns), entered);
        }
    }

    /// The number and the row of the call which `launch` is, if the ledger was told of it.
    pub(super) fn number_of(&mut self, launch: &Launch) -> Option<(i64, i64)> {
        let key = (launch.tid, launch.start_ns);
        let number = self.told.remove(&key);
        // What is older than this one has been lost on its way.
        while let Some((&older, _)) = self.told.range((launch.tid, 0)..key).next() {
            self.told.remove(&older);
        }
        number
    }

    /// Writes a single launch, whose call has the number `correlation`.
    pub(super) fn single(
        &mut self,
        launch: &Launch,
        correlation: i64,
        state: &state::Launches,
    ) -> rusqlite::Result<()> {
        let launched = self.id_of(launch, state)?;
        self.single.row(params![
            correlation,
            global_pid(launch.pid),
            launched,
            launch.stream.cast_signed(),
            launch.grid[0],
            launch.grid[1],
            launch.grid[2],
            launch.block[0],
            launch.block[1],
            launch.block[2],
            launch.captured
        ])
    }

    /// The number of what was launched.
    fn id_of(&mut self, launch: &Launch, state: &state::Launches) -> rusqlite::Result<i64> {
        let key = &launch.key;
        let same = self.known.entry(handle_of(key)).or_default();
        if let Some(launched) = same.iter().find(|l| l.row == key.row) {
            return Ok(launched.id);
        }
        self.last_id += 1;
        let is_graph = launch.function.op == Op::GraphLaunch;
        let mangled = if is_graph { None } else { name(state, key) };
        self.launched.row(params![
            self.last_id,
            global_pid(launch.pid),
            shown(mangled.as_deref(), key.handle),
            mangled,
            key.handle.cast_signed(),
            launch.function.symbol,
            is_graph
        ])?;
        same.push(Launched {
            row: key.row,
            id: self.last_id,
            mangled,
        });
        Ok(self.last_id)
    }

    /// A name was learnt, or contradicts what was believed: what was launched before may have
    /// another name by now. Another thread's first launch may also be told before the name is.
    pub(super) fn named(
        &mut self,
        kernel: &Kernel,
        state: &state::Launches,
    ) -> rusqlite::Result<()> {
        let process = kernel.key.process;
        let launcher = state.launcher_of(process);
        let distrusts = launcher.is_some_and(state::launches::Launcher::distrusts_handles);
        if distrusts && self.distrusted.insert(process) {
            let of_process = self.known.iter_mut().filter(|((p, ..), _)| *p == process);
            for (handle, launched) in of_process {
                rename(self.connection, *handle, launched, state)?;
            }
        } else if let Some(launched) = self.known.get_mut(&handle_of(&kernel.key)) {
            rename(self.connection, handle_of(&kernel.key), launched, state)?;
        }
        Ok(())
    }

    /// Writes what has been launched so far, if it has been counted again.
    pub(super) fn write_counts(&mut self, state: &state::Launches) -> rusqlite::Result<()> {
        if !std::mem::take(&mut self.is_counted) {
            return Ok(());
        }
        self.connection
            .execute("DELETE FROM GPUPROBE_LAUNCH_COUNTS", [])?;
        for (key, counted, mangled) in state.counted() {
            let function = gpuprobe_cuda::function(key.row);
            let pid = state.launcher_of(key.process).map_or(0, |l| l.pid);
            self.counts.row(params![
                global_pid(pid),
                shown(mangled.as_deref(), key.handle),
                mangled,
                key.handle.cast_signed(),
                function.map(|f| f.symbol),
                counted.grid[0],
                counted.grid[1],
                counted.grid[2],
                counted.block[0],
                counted.block[1],
                counted.block[2],
                counted.runs.cast_signed(),
                counted.captured.cast_signed(),
                function.is_some_and(|f| f.op == Op::GraphLaunch)
            ])?;
        }
        Ok(())
    }
}

/// The mangled name of the kernel `key`, if it is known.
fn name(state: &state::Launches, key: &RawLaunchKey) -> Option<String> {
    let launcher = state.launcher_of(key.process)?;
    launcher.name(key.handle, key.epoch).map(str::to_owned)
}

/// Gives what was launched through `handle` the name that it has now.
fn rename(
    connection: &Connection,
    handle: Handle,
    launched: &mut [Launched],
    state: &state::Launches,
) -> rusqlite::Result<()> {
    let (process, handle, epoch) = handle;
    let name = state
        .launcher_of(process)
        .and_then(|l| l.name(handle, epoch));
    let is_kernel =
        |l: &&mut Launched| gpuprobe_cuda::function(l.row).is_some_and(|f| f.op == Op::Launch);
    for launched in launched.iter_mut().filter(is_kernel) {
        if launched.mangled.as_deref() != name {
            launched.mangled = name.map(str::to_owned);
            let sql = "UPDATE GPUPROBE_LAUNCHED SET name = ?2, mangled = ?3 WHERE launched = ?1";
            connection.execute(sql, params![launched.id, shown(name, handle), name])?;
        }
    }
    Ok(())
}
