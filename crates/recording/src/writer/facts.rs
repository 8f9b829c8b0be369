//! Metadata that a recording contains about its run.

use chrono::{SecondsFormat, Utc};
use rusqlite::{Result, params};

use super::gpus;
use super::schema::{self, SCHEMA_VERSION};
use super::tables::{Tables, signed};
use crate::{ids, log};
use gpuprobe_cuda::kinds::KINDS;
use gpuprobe_cuda::nsys::ENUMERATIONS;
use gpuprobe_cuda::{FUNCTIONS, KindSet, MemoryKind, Modes};
use gpuprobe_model::clock::WallClock;
use gpuprobe_os::kernel;

/// Metadata of a run.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Clocks at session time 0.
    pub clock: WallClock,
    /// Tracing modes of the run.
    pub modes: Modes,
    /// Memory kinds of reports and memory events; calls are recorded for all kinds.
    pub kinds: KindSet,
    /// Traced command; empty if there is none.
    pub command: Vec<String>,
    /// Command line of gpuprobe.
    pub command_line: Vec<String>,
}

impl Facts {
    /// Metadata of a run that starts now.
    pub fn now(modes: Modes) -> Self {
        Self {
            clock: WallClock::now(),
            modes,
            kinds: KindSet::default(),
            command: Vec::new(),
            command_line: Vec::new(),
        }
    }

    /// Creates the tables that do not depend on events.
    pub(super) fn write(&self, tables: &mut Tables<'_>) -> Result<()> {
        for list in [schema::CORE_TABLES, schema::OURS] {
            schema::tables(list).try_for_each(|(table, _)| tables.create(table))?;
        }
        let [major, minor, micro] = SCHEMA_VERSION;
        for (name, value) in [
            ("EXPORT_PRODUCT_NAME", "gpuprobe"),
            ("EXPORT_PRODUCT_VERSION", env!("CARGO_PKG_VERSION")),
            ("EXPORT_SCHEMA_VERSION", &SCHEMA_VERSION.join(".")),
            ("EXPORT_SCHEMA_VERSION_MAJOR", major),
            ("EXPORT_SCHEMA_VERSION_MINOR", minor),
            ("EXPORT_SCHEMA_VERSION_MICRO", micro),
        ] {
            tables.insert("META_DATA_EXPORT", params![name, value])?;
        }
        // Never the environment: it may contain secrets.
        for (index, word) in self.command.iter().enumerate() {
            let name = match index.checked_sub(1) {
                None => "PROCESS_0:COMMAND".to_owned(),
                Some(argument) => format!("PROCESS_0:ARGUMENT_{argument}"),
            };
            tables.insert("META_DATA_CAPTURE", params![name, word])?;
        }
        for (row, function) in (0i64..).zip(FUNCTIONS.iter()) {
            tables.insert("GPUPROBE_FUNCTIONS", params![row, function.symbol])?;
        }
        self.write_start(tables)?;
        self.write_notes(tables)?;
        write_enumerations(tables)?;
        gpus::write(tables)
    }

    /// Writes the start time.
    fn write_start(&self, tables: &mut Tables<'_>) -> Result<()> {
        let wall = self.clock.wall(self.clock.monotonic_ns());
        let seconds = "%Y-%m-%dT%H:%M:%S";
        let row = params![
            wall.timestamp_nanos_opt(),
            wall.with_timezone(&Utc).format(seconds).to_string(),
            wall.format(seconds).to_string(),
            signed(self.clock.monotonic_ns())
        ];
        tables.insert("TARGET_INFO_SESSION_START_TIME", row)?;
        tables.insert("ANALYSIS_DETAILS", params![ids::BASE, 0, 0, 0])
    }

    /// Writes the metadata that only gpuprobe has.
    fn write_notes(&self, tables: &mut Tables<'_>) -> Result<()> {
        let kinds = MemoryKind::ALL
            .into_iter()
            .filter(|kind| kind.is_traced() && self.kinds.contains(*kind));
        let kinds: Vec<_> = kinds.map(MemoryKind::name).collect();
        let memory_events = match self.modes {
            Modes { memleak: true, .. } => "ledger",
            Modes { activity: true, .. } => "cupti",
            _ => "none",
        };
        let driver = std::fs::read_to_string("/proc/driver/nvidia/version").ok();
        let driver = driver.as_deref().and_then(|text| text.lines().next());
        let wall = self.clock.wall(self.clock.monotonic_ns());
        let notes = [
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("command_line", self.command_line.join(" ")),
            ("modes", self.modes.names().join(" ")),
            ("kinds", kinds.join(" ")),
            ("memory_events", memory_events.to_owned()),
            ("log", log::VERSION.to_owned()),
            ("kernel", kernel::release()),
            ("driver", driver.unwrap_or("unknown").to_owned()),
            ("monotonic_ns", self.clock.monotonic_ns().to_string()),
            ("boottime_ns", gpuprobe_model::clock::boot_ns().to_string()),
            ("began", wall.to_rfc3339_opts(SecondsFormat::Nanos, false)),
        ];
        let sql = "INSERT OR REPLACE INTO GPUPROBE_META VALUES (?, ?)";
        for (key, value) in &notes {
            tables.execute(sql, [*key, value.as_str()])?;
        }
        write_system(tables, driver)
    }
}

/// Writes the system information of exports, as far as known.
fn write_system(tables: &mut Tables<'_>, driver: Option<&str>) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    // The version is the first word that starts with a digit.
    let version = driver.and_then(|line| {
        let is_number = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
        line.split_whitespace().find(is_number)
    });
    let system = format!("Linux {}", kernel::release());
    for (name, number, value) in [
        ("CpuCores", 1, Some(cores.to_string())),
        ("NvDriverVersion", 205, version.map(str::to_owned)),
        ("OsDescription", 605, Some(system)),
    ] {
        if let Some(value) = value {
            let row = params![ids::BASE, "Local (CLI)", name, number, value];
            tables.insert("TARGET_INFO_SYSTEM_ENV", row)?;
        }
    }
    Ok(())
}

fn write_enumerations(tables: &Tables<'_>) -> Result<()> {
    let memory_kinds = KINDS.iter();
    let memory_kinds = memory_kinds.map(|kind| (kind.id.into(), kind.name.to_owned(), kind.label));
    write_enumeration(tables, "ENUM_CUDA_MEM_KIND", memory_kinds)?;
    ENUMERATIONS.iter().try_for_each(|one| {
        let name = |name| format!("{}{name}", one.prefix);
        let values = one.values.iter();
        let values = values.map(|value| (value.number, name(value.name), value.label));
        write_enumeration(tables, one.table, values)
    })
}

fn write_enumeration(
    tables: &Tables<'_>,
    table: &str,
    mut values: impl Iterator<Item = (i64, String, &'static str)>,
) -> Result<()> {
    let columns = "id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT";
    tables.execute(&format!("CREATE TABLE {table} ({columns})"), [])?;
    let sql = format!("INSERT INTO {table} VALUES (?, ?, ?)");
    values.try_for_each(|value| tables.execute(&sql, value))
}
