//! Metadata of a file: its producer, the run, and losses.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;
use chrono::{DateTime, FixedOffset, NaiveDateTime, TimeDelta, TimeZone, Utc};
use serde::Serialize;

use super::{Database, ids, row};
use gpuprobe_model::UserLoss;

/// Metadata of a recording or export.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Session {
    /// Program that wrote the file.
    pub product: Option<String>,
    /// Version of that program.
    pub version: Option<String>,
    /// Version of the schema.
    pub schema: Option<String>,
    /// Command line of the traced program.
    pub command: Option<String>,
    /// Wall-clock time of session time 0, nanoseconds since the Unix epoch.
    pub start_epoch_ns: Option<i64>,
    /// UTC offset of the target, seconds.
    pub utc_offset_s: Option<i32>,
    /// Process names by process id.
    #[serde(skip)]
    pub processes: HashMap<u32, String>,
    /// User ids by process id; only in gpuprobe's recordings.
    #[serde(skip)]
    pub users: HashMap<u32, u32>,
    /// Names of GPUs by index.
    pub gpus: BTreeMap<i64, String>,
    /// UUIDs of GPUs by index, as far as known.
    #[serde(skip)]
    pub gpu_uuids: BTreeMap<i64, String>,
    /// End of the recording, session time in nanoseconds.
    #[serde(skip)]
    pub stop_ns: Option<i64>,
    /// Loss counters by name; empty if nothing was lost or losses were not counted.
    pub lost: BTreeMap<String, u64>,
    /// Losses by user and process.
    #[serde(skip)]
    pub lost_by_user: Vec<UserLoss>,
    /// All keys and values of `GPUPROBE_META`.
    pub notes: BTreeMap<String, String>,
}

/// Maximum number of rows that are read of losses by user; recordings have fewer.
const MAX_LOST_BY_USER: usize = 4096;

impl Session {
    /// Reads the metadata.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn read(database: &Database) -> Result<Self> {
        let mut session = Self::default();
        session.read_metadata(database)?;
        session.read_start(database)?;
        database.each("PROCESSES", &["globalPid", "name"], "", |found| {
            if let (Some(global), Some(name)) = (row::integer(found, 0), row::text(found, 1)) {
                session.processes.insert(ids::pid(global), name);
            }
        })?;
        let columns = ["globalPid", "uid"];
        database.each("GPUPROBE_PROCESSES", &columns, "", |found| {
            let uid = row::integer(found, 1).and_then(|uid| u32::try_from(uid).ok());
            if let (Some(global), Some(uid)) = (row::integer(found, 0), uid) {
                session.users.insert(ids::pid(global), uid);
            }
        })?;
        let id = ["id", "deviceId"];
        let id = id
            .into_iter()
            .find(|id| database.has_column("TARGET_INFO_GPU", id));
        database.each(
            "TARGET_INFO_GPU",
            &[id.unwrap_or("id"), "name", "uuid"],
            "",
            |found| {
                if let (Some(id), Some(name)) = (row::integer(found, 0), row::text(found, 1)) {
                    session.gpus.insert(id, name);
                    session
                        .gpu_uuids
                        .extend(row::text(found, 2).map(|uuid| (id, uuid)));
                }
            },
        )?;
        database.each("ANALYSIS_DETAILS", &["stopTime"], "", |found| {
            session.stop_ns = session.stop_ns.max(row::integer(found, 0));
        })?;
        database.each("GPUPROBE_META", &["key", "val"], "", |found| {
            if let (Some(key), Some(value)) = (row::text(found, 0), row::text(found, 1)) {
                session.notes.insert(key, value);
            }
        })?;
        database.each("GPUPROBE_LOST", &["what", "count"], "", |found| {
            if let (Some(what), Some(count)) = (row::text(found, 0), row::integer(found, 1)) {
                session.lost.insert(what, u64::try_from(count).unwrap_or(0));
            }
        })?;
        session.lost.retain(|_, count| *count > 0);
        session.read_lost_by_user(database)?;
        Ok(session)
    }

    fn read_lost_by_user(&mut self, database: &Database) -> Result<()> {
        let columns = ["uid", "pid", "comm", "what", "count"];
        database.each("GPUPROBE_LOST_BY_USER", &columns, "", |found| {
            let number = |column| row::integer(found, column);
            let small = |column| number(column).and_then(|n| u32::try_from(n).ok());
            let count = number(4).and_then(|count| u64::try_from(count).ok());
            if let (Some(uid), Some(what), Some(count)) = (small(0), row::text(found, 3), count)
                && self.lost_by_user.len() < MAX_LOST_BY_USER
            {
                self.lost_by_user.push(UserLoss {
                    uid,
                    pid: small(1),
                    comm: row::text(found, 2),
                    what,
                    count,
                });
            }
        })
    }

    fn read_metadata(&mut self, database: &Database) -> Result<()> {
        let mut words: BTreeMap<usize, String> = BTreeMap::new();
        for table in ["META_DATA_EXPORT", "EXPORT_META_DATA", "META_DATA_CAPTURE"] {
            database.each(table, &["name", "value"], "", |found| {
                let (Some(name), Some(value)) = (row::text(found, 0), row::text(found, 1)) else {
                    return;
                };
                match name.as_str() {
                    "EXPORT_PRODUCT_NAME" => self.product = Some(value),
                    "EXPORT_PRODUCT_VERSION" => self.version = Some(value),
                    "EXPORT_SCHEMA_VERSION" => self.schema = Some(value),
                    "PROCESS_0:COMMAND" => {
                        words.insert(0, value);
                    }
                    _ => {
                        let number = name.strip_prefix("PROCESS_0:ARGUMENT_");
                        if let Some(number) = number.and_then(|n| n.parse::<usize>().ok()) {
                            words.insert(number.saturating_add(1), value);
                        }
                    }
                }
            })?;
        }
        if words.contains_key(&0) {
            self.command = Some(words.into_values().collect::<Vec<_>>().join(" "));
        }
        Ok(())
    }

    fn read_start(&mut self, database: &Database) -> Result<()> {
        let table = "TARGET_INFO_SESSION_START_TIME";
        database.each(
            table,
            &["utcEpochNs", "utcTime", "localTime"],
            "LIMIT 1",
            |found| {
                self.start_epoch_ns = row::integer(found, 0);
                let time = |index| parse_time(&row::text(found, index)?);
                if let (Some(utc), Some(local)) = (time(1), time(2)) {
                    self.utc_offset_s = i32::try_from((local - utc).num_seconds()).ok();
                }
            },
        )
    }

    /// The wall-clock time of session time `ns`, in the target's time zone.
    pub fn wall(&self, ns: i64) -> Option<DateTime<FixedOffset>> {
        let start = Utc.timestamp_nanos(self.start_epoch_ns?);
        let zone = FixedOffset::east_opt(self.utc_offset_s.unwrap_or(0))?;
        let time = start.checked_add_signed(TimeDelta::nanoseconds(ns))?;
        Some(time.with_timezone(&zone))
    }

    /// Major version of the schema, if known.
    pub fn schema_major(&self) -> Option<u32> {
        self.schema.as_ref()?.split('.').next()?.parse().ok()
    }
}

fn parse_time(text: &str) -> Option<NaiveDateTime> {
    let text = text.get(..19)?;
    NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S")
        .or_else(|_| NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S"))
        .ok()
}
