//! Devices, contexts and streams as reported by CUPTI.

use std::collections::{HashMap, HashSet};

use rusqlite::{OptionalExtension, Result, ToSql, params, params_from_iter};

use crate::ids::{BASE, global_pid};
use crate::writer::contexts::{HARDWARE, VIRTUAL_MACHINE};
use crate::writer::tables::{Tables, signed};
use gpuprobe_cuda::names;
use gpuprobe_cuda::nsys::{OBJECTS, object};
use gpuprobe_model::activity::Activity;
use gpuprobe_wire as wire;

/// Columns of a context in rows about its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContextRow {
    /// `contextId`; for a green context, the id of its parent.
    pub(super) id: u32,
    /// `greenContextId`: 0 if it is not a green context, `None` if CUPTI has not reported the
    /// context.
    pub(super) green: Option<u32>,
    pub(super) device: Option<u32>,
}

/// Writer of devices, contexts and streams.
#[derive(Debug, Default)]
pub(super) struct Places {
    contexts: HashMap<(u32, u32), ContextRow>,
    streams: HashSet<(u32, u32, u32)>,
}

impl Places {
    /// The columns of a context of a process.
    pub(super) fn of(&self, pid: u32, context: u32) -> ContextRow {
        let known = self.contexts.get(&(pid, context)).copied();
        known.unwrap_or(ContextRow {
            id: context,
            green: None,
            device: None,
        })
    }

    pub(super) fn context(
        &mut self,
        pid: u32,
        context: &wire::Context,
        tables: &mut Tables<'_>,
    ) -> Result<()> {
        let id = context.context;
        let parent = wire::known(context.parent_context);
        let known = ContextRow {
            id: parent.unwrap_or(id),
            green: Some(parent.map_or(0, |_| id)),
            device: Some(context.device),
        };
        if self.contexts.insert((pid, id), known) == Some(known) {
            return Ok(());
        }
        let row = params![
            context.null_stream,
            HARDWARE,
            VIRTUAL_MACHINE,
            pid,
            context.device,
            id,
            parent.unwrap_or(0),
            parent.is_some()
        ];
        let table = "TARGET_INFO_CUDA_CONTEXT_INFO";
        let key = "processId = ? AND contextId = ?";
        replace(tables, table, key, &[pid, id], row)
    }

    pub(super) fn stream(
        &mut self,
        pid: u32,
        stream: &wire::Stream,
        tables: &mut Tables<'_>,
    ) -> Result<()> {
        let (context, id) = (stream.context, stream.stream);
        if !self.streams.insert((pid, context, id)) {
            return Ok(());
        }
        let key = "processId = ? AND contextId = ? AND streamId = ?";
        let row = params![
            id,
            HARDWARE,
            VIRTUAL_MACHINE,
            pid,
            context,
            // Exports have unsigned values here: -5 is 4294967291.
            stream.priority.cast_unsigned(),
            stream.flag
        ];
        let ids = [pid, context, id];
        replace(tables, "TARGET_INFO_CUDA_STREAM", key, &ids, row)
    }

    /// Writes a GPU of a process.
    pub(super) fn device(
        &mut self,
        pid: u32,
        device: &wire::Device,
        name: Option<&str>,
        tables: &mut Tables<'_>,
    ) -> Result<()> {
        let gpu = gpu(device, tables)?;
        describe(gpu, device, name, tables)?;
        let row = params![gpu, device.device, pid];
        let (table, ids) = ("TARGET_INFO_CUDA_DEVICE", [pid, device.device]);
        replace(tables, table, "pid = ? AND cudaId = ?", &ids, row)
    }
}

/// Inserts a row, in place of one that a probe has written.
fn replace(
    tables: &mut Tables<'_>,
    table: &'static str,
    key: &str,
    ids: &[u32],
    row: &[&dyn ToSql],
) -> Result<()> {
    tables.create(table)?;
    let sql = format!("DELETE FROM {table} WHERE {key}");
    tables.execute(&sql, params_from_iter(ids))?;
    tables.insert(table, row)
}

/// The row id of a GPU.
fn gpu(device: &wire::Device, tables: &Tables<'_>) -> Result<i64> {
    tables.create("TARGET_INFO_GPU")?;
    let connection = tables.connection;
    let uuid = names::uuid(&device.uuid);
    let find = "SELECT id FROM TARGET_INFO_GPU WHERE uuid = ?";
    let known = connection.query_row(find, [&uuid], |row| row.get(0));
    if let Some(id) = known.optional()? {
        return Ok(id);
    }
    // The id is the device index, unless another GPU has it.
    let sql = "INSERT INTO TARGET_INFO_GPU (vmId, id, uuid) SELECT ?1, \
               CASE WHEN EXISTS (SELECT 1 FROM TARGET_INFO_GPU WHERE id = ?2) \
               THEN (SELECT max(id) + 1 FROM TARGET_INFO_GPU) ELSE ?2 END, ?3 \
               RETURNING id";
    connection.query_row(sql, params![BASE, device.device, uuid], |row| row.get(0))
}

/// Updates the row of a GPU: the driver's files contain fewer values.
fn describe(id: i64, device: &wire::Device, name: Option<&str>, tables: &Tables<'_>) -> Result<()> {
    let sql = "UPDATE TARGET_INFO_GPU SET name = coalesce(?, name), l2CacheSize = ?, \
               totalMemory = ?, memoryBandwidth = ?, clockRate = ?, smCount = ?, cuDevice = ?, \
               constantMemory = ?, maxRegistersPerBlock = ?, maxShmemPerBlock = ?, \
               maxShmemPerSm = ?, maxRegistersPerSm = ?, threadsPerWarp = ?, asyncEngines = ?, \
               maxWarpsPerSm = ?, maxBlocksPerSm = ?, maxThreadsPerBlock = ?, maxBlockDimX = ?, \
               maxBlockDimY = ?, maxBlockDimZ = ?, maxGridDimX = ?, maxGridDimY = ?, \
               maxGridDimZ = ?, computeMajor = ?, computeMinor = ? WHERE id = ?";
    let [block_x, block_y, block_z] = device.max_block_dim;
    let [grid_x, grid_y, grid_z] = device.max_grid_dim;
    let values = params![
        name,
        device.l2_cache_bytes,
        signed(device.memory_bytes),
        // kB/s and kHz are converted to bytes/s and Hz.
        signed(device.memory_bandwidth.saturating_mul(1000)),
        i64::from(device.clock_khz) * 1000,
        device.multiprocessors,
        device.device,
        device.constant_memory_bytes,
        device.max_registers_per_block,
        device.max_shared_memory_per_block,
        device.max_shared_memory_per_multiprocessor,
        device.max_registers_per_multiprocessor,
        device.threads_per_warp,
        device.copy_engines,
        device.max_warps_per_multiprocessor,
        device.max_blocks_per_multiprocessor,
        device.max_threads_per_block,
        block_x,
        block_y,
        block_z,
        grid_x,
        grid_y,
        grid_z,
        device.capability_major,
        device.capability_minor,
        id
    ];
    tables.execute(sql, values)
}

/// Writes the name that the program gave to an object. Names of threads are also written to the
/// table of exports.
pub(super) fn name(
    activity: &Activity,
    name: &wire::Name,
    thread: Option<(u32, u32)>,
    tables: &mut Tables<'_>,
) -> Result<()> {
    let Some(text) = activity.name.as_deref() else {
        return Ok(());
    };
    if let Some((pid, tid)) = thread.filter(|_| name.object.kind == object::THREAD) {
        tables.name_thread(pid, tid, text)?;
    }
    let object = OBJECTS.of(name.object.kind).label;
    let wire::Object { a, b, c, .. } = name.object;
    let row = params![global_pid(activity.pid), object, a, b, c, text];
    tables.insert("GPUPROBE_NAMES", row)
}
