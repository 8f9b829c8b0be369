//! Devices, contexts and streams as reported by CUPTI.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, OptionalExtension, params};

use crate::ids::{BASE, global_pid};
use crate::writer::common::RowContext;
use crate::writer::contexts::{HARDWARE, VIRTUAL_MACHINE};
use crate::writer::insert::Insert;
use crate::writer::schema;
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
pub(super) struct Places<'c> {
    connection: &'c Connection,
    contexts: HashMap<(u32, u32), ContextRow>,
    streams: HashSet<(u32, u32, u32)>,
    context_rows: Insert<'c>,
    stream_rows: Insert<'c>,
    device_rows: Insert<'c>,
    name_rows: Insert<'c>,
}

impl<'c> Places<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        let into = |table| Insert::into(connection, table);
        Self {
            connection,
            contexts: HashMap::new(),
            streams: HashSet::new(),
            context_rows: into("TARGET_INFO_CUDA_CONTEXT_INFO"),
            stream_rows: into("TARGET_INFO_CUDA_STREAM"),
            device_rows: into("TARGET_INFO_CUDA_DEVICE"),
            name_rows: into("GPUPROBE_NAMES"),
        }
    }

    /// The columns of a context of a process.
    pub(super) fn of(&self, pid: u32, context: u32) -> ContextRow {
        let known = self.contexts.get(&(pid, context)).copied();
        known.unwrap_or(ContextRow {
            id: context,
            green: None,
            device: None,
        })
    }

    pub(super) fn context(&mut self, pid: u32, context: &wire::Context) -> rusqlite::Result<()> {
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
        // A probe may have written it already.
        let sql = "DELETE FROM TARGET_INFO_CUDA_CONTEXT_INFO WHERE processId = ? AND contextId = ?";
        if self
            .connection
            .table_exists(None, "TARGET_INFO_CUDA_CONTEXT_INFO")?
        {
            self.connection.execute(sql, [pid, id])?;
        }
        self.context_rows.row(params![
            context.null_stream,
            HARDWARE,
            VIRTUAL_MACHINE,
            pid,
            context.device,
            id,
            parent.unwrap_or(0),
            parent.is_some()
        ])
    }

    pub(super) fn stream(&mut self, pid: u32, stream: &wire::Stream) -> rusqlite::Result<()> {
        if !self.streams.insert((pid, stream.context, stream.stream)) {
            return Ok(());
        }
        let table = "TARGET_INFO_CUDA_STREAM";
        if self.connection.table_exists(None, table)? {
            let sql = "DELETE FROM TARGET_INFO_CUDA_STREAM \
                       WHERE processId = ? AND contextId = ? AND streamId = ?";
            let key = [pid, stream.context, stream.stream];
            self.connection.execute(sql, key)?;
        }
        self.stream_rows.row(params![
            stream.stream,
            HARDWARE,
            VIRTUAL_MACHINE,
            pid,
            stream.context,
            // Exports have unsigned values here: -5 is 4294967291.
            stream.priority.cast_unsigned(),
            stream.flag
        ])
    }

    /// Writes a GPU of a process.
    pub(super) fn device(
        &mut self,
        pid: u32,
        device: &wire::Device,
        name: Option<&str>,
    ) -> rusqlite::Result<()> {
        let gpu = self.gpu(device)?;
        self.describe(gpu, device, name)?;
        let table = "TARGET_INFO_CUDA_DEVICE";
        if self.connection.table_exists(None, table)? {
            let sql = "DELETE FROM TARGET_INFO_CUDA_DEVICE WHERE pid = ? AND cudaId = ?";
            self.connection.execute(sql, [pid, device.device])?;
        }
        self.device_rows.row(params![gpu, device.device, pid])
    }

    /// The row id of a GPU.
    fn gpu(&self, device: &wire::Device) -> rusqlite::Result<i64> {
        let table = "TARGET_INFO_GPU";
        if !self.connection.table_exists(None, table)?
            && let Some(definition) = schema::table(table)
        {
            self.connection.execute(&schema::create(definition), [])?;
        }
        let uuid = names::uuid(&device.uuid);
        let find = "SELECT id FROM TARGET_INFO_GPU WHERE uuid = ?";
        let known = self
            .connection
            .query_row(find, [&uuid], |row| row.get(0))
            .optional()?;
        match known {
            Some(id) => Ok(id),
            None => {
                // The id is the device index, unless another GPU has it.
                let sql = "INSERT INTO TARGET_INFO_GPU (vmId, id, uuid) SELECT ?1, \
                           CASE WHEN EXISTS (SELECT 1 FROM TARGET_INFO_GPU WHERE id = ?2) \
                           THEN (SELECT max(id) + 1 FROM TARGET_INFO_GPU) ELSE ?2 END, ?3 \
                           RETURNING id";
                let values = params![BASE, device.device, uuid];
                self.connection.query_row(sql, values, |row| row.get(0))
            }
        }
    }

    /// Updates the row of a GPU: the driver's files contain fewer values.
    fn describe(&self, id: i64, device: &wire::Device, name: Option<&str>) -> rusqlite::Result<()> {
        let sql = "UPDATE TARGET_INFO_GPU SET name = coalesce(?2, name) WHERE id = ?1";
        self.connection.execute(sql, params![id, name])?;
        let [block_x, block_y, block_z] = device.max_block_dim;
        let [grid_x, grid_y, grid_z] = device.max_grid_dim;
        for (column, value) in [
            ("l2CacheSize", device.l2_cache_bytes.into()),
            ("totalMemory", device.memory_bytes.cast_signed()),
            // kB/s and kHz are converted to bytes/s and Hz.
            (
                "memoryBandwidth",
                device.memory_bandwidth.saturating_mul(1000).cast_signed(),
            ),
            ("clockRate", i64::from(device.clock_khz) * 1000),
            ("smCount", device.multiprocessors.into()),
            ("cuDevice", device.device.into()),
            ("constantMemory", device.constant_memory_bytes.into()),
            (
                "maxRegistersPerBlock",
                device.max_registers_per_block.into(),
            ),
            (
                "maxShmemPerBlock",
                device.max_shared_memory_per_block.into(),
            ),
            (
                "maxShmemPerSm",
                device.max_shared_memory_per_multiprocessor.into(),
            ),
            (
                "maxRegistersPerSm",
                device.max_registers_per_multiprocessor.into(),
            ),
            ("threadsPerWarp", device.threads_per_warp.into()),
            ("asyncEngines", device.copy_engines.into()),
            ("maxWarpsPerSm", device.max_warps_per_multiprocessor.into()),
            (
                "maxBlocksPerSm",
                device.max_blocks_per_multiprocessor.into(),
            ),
            ("maxThreadsPerBlock", device.max_threads_per_block.into()),
            ("maxBlockDimX", block_x.into()),
            ("maxBlockDimY", block_y.into()),
            ("maxBlockDimZ", block_z.into()),
            ("maxGridDimX", grid_x.into()),
            ("maxGridDimY", grid_y.into()),
            ("maxGridDimZ", grid_z.into()),
            ("computeMajor", device.capability_major.into()),
            ("computeMinor", device.capability_minor.into()),
        ] {
            let sql = format!("UPDATE TARGET_INFO_GPU SET {column} = ?2 WHERE id = ?1");
            self.connection.execute(&sql, params![id, value])?;
        }
        Ok(())
    }

    /// Writes the name that the program gave to an object. Names of threads are also written to the
    /// table of exports.
    pub(super) fn name(
        &mut self,
        activity: &Activity,
        name: &wire::Name,
        thread: Option<(u32, u32)>,
        common: &mut RowContext<'c>,
    ) -> rusqlite::Result<()> {
        let Some(text) = activity.name.as_deref() else {
            return Ok(());
        };
        if let Some((pid, tid)) = thread.filter(|_| name.object.kind == object::THREAD) {
            common
                .tasks
                .name_thread(pid, tid, text, &mut common.strings)?;
        }
        let object = OBJECTS.of(name.object.kind).label;
        let wire::Object { a, b, c, .. } = name.object;
        self.name_rows
            .row(params![global_pid(activity.pid), object, a, b, c, text])
    }
}
