//! Launch counters per kernel and, if they are recorded, single launches.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rusqlite::{Result, params};

use super::tables::Tables;
use crate::batch::LoggedLaunch;
use crate::ids::global_pid;
use gpuprobe_cuda::Op;
use gpuprobe_engine::KernelHandle;
use gpuprobe_model::event::{Call, Launch};
use gpuprobe_stacks::symbols;

/// A kernel or executable graph.
#[derive(Debug, Default)]
struct LaunchedKernelRow {
    mangled: Option<Arc<str>>,
    /// Its rows in `GPUPROBE_LAUNCHED` by launching function: row of the function table, and id.
    launched: Vec<(u16, i64)>,
}

/// Writer of launches.
#[derive(Debug, Default)]
pub(super) struct LaunchWriter {
    known: HashMap<KernelHandle, LaunchedKernelRow>,
    last_id: i64,
    /// Recorded calls that are also launches, by thread and start: number and row.
    graph_launches: BTreeMap<(u32, u64), (i64, i64)>,
}

/// Display name: demangled, or the handle without a name.
fn shown(mangled: Option<&str>, handle: u64) -> String {
    mangled.map_or_else(|| format!("{handle:#x}"), symbols::demangle)
}

impl LaunchWriter {
    /// Drops the kernels of a process, as numbered in launch keys.
    pub(super) fn forget(&mut self, process: u32) {
        self.known.retain(|(of, ..), _| *of != process);
    }

    /// Registers a graph launch that was recorded as a call, with its number and row; it may also
    /// arrive as a single launch.
    pub(super) fn add_graph_launch(&mut self, call: &Call, entered: (i64, i64)) {
        if call.function.op == Op::GraphLaunch {
            self.graph_launches
                .insert((call.tid, call.start_ns), entered);
        }
    }

    /// The number and row of the call of `launch`, if it was recorded as a call.
    pub(super) fn number_of(&mut self, launch: &Launch) -> Option<(i64, i64)> {
        let key = (launch.tid, launch.start_ns);
        let number = self.graph_launches.remove(&key);
        // Launches older than this one were lost.
        while let Some((&older, _)) = self.graph_launches.range((launch.tid, 0)..key).next() {
            self.graph_launches.remove(&older);
        }
        number
    }

    /// Writes a single launch with the number `correlation` of its call.
    pub(super) fn single(
        &mut self,
        launch: &Launch,
        correlation: i64,
        tables: &mut Tables<'_>,
    ) -> Result<()> {
        let launched = self.id_of(launch, tables)?;
        let row = params![
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
        ];
        tables.insert("GPUPROBE_LAUNCHES", row)
    }

    /// The id of the launched kernel and function.
    fn id_of(&mut self, launch: &Launch, tables: &mut Tables<'_>) -> Result<i64> {
        let key = &launch.key;
        let kernel = self.known.entry((key.process, key.handle, key.epoch));
        let kernel = kernel.or_default();
        if let Some((_, id)) = kernel.launched.iter().find(|(row, _)| *row == key.row) {
            return Ok(*id);
        }
        self.last_id += 1;
        let is_graph = launch.function.op == Op::GraphLaunch;
        let mangled = kernel.mangled.as_deref().filter(|_| !is_graph);
        let row = params![
            self.last_id,
            global_pid(launch.pid),
            shown(mangled, key.handle),
            mangled,
            key.handle.cast_signed(),
            launch.function.symbol,
            is_graph
        ];
        tables.insert("GPUPROBE_LAUNCHED", row)?;
        kernel.launched.push((key.row, self.last_id));
        Ok(self.last_id)
    }

    /// Sets or removes the name of a kernel, also in existing rows: another thread's first launch
    /// may arrive before the name.
    pub(super) fn named(
        &mut self,
        handle: KernelHandle,
        name: Option<Arc<str>>,
        tables: &Tables<'_>,
    ) -> Result<()> {
        let kernel = self.known.entry(handle).or_default();
        if kernel.mangled == name {
            return Ok(());
        }
        kernel.mangled = name;
        let name = kernel.mangled.as_deref();
        let is_kernel = |row| gpuprobe_cuda::function(row).is_some_and(|f| f.op == Op::Launch);
        for (_, id) in kernel.launched.iter().filter(|(row, _)| is_kernel(*row)) {
            let sql = "UPDATE GPUPROBE_LAUNCHED SET name = ?2, mangled = ?3 WHERE launched = ?1";
            tables.execute(sql, params![id, shown(name, handle.1), name])?;
        }
        Ok(())
    }
}

/// Writes the current launch counters.
pub(super) fn write_counts(counted: &[LoggedLaunch], tables: &mut Tables<'_>) -> Result<()> {
    tables.execute("DELETE FROM GPUPROBE_LAUNCH_COUNTS", [])?;
    for launched in counted {
        let (key, counted) = (&launched.key, &launched.counted);
        let function = gpuprobe_cuda::function(key.row);
        let mangled = launched.mangled.as_deref();
        let row = params![
            global_pid(launched.pid),
            shown(mangled, key.handle),
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
        ];
        tables.insert("GPUPROBE_LAUNCH_COUNTS", row)?;
    }
    Ok(())
}
