//! Metadata of a file: its producer, the run, and losses.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;
use chrono::{DateTime, FixedOffset, NaiveDateTime, TimeDelta, TimeZone, Utc};
use rusqlite::Row;
use serde::Serialize;

use super::row::{integer, text};
use super::{Database, ids};
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
    pub fn read(database: &Database) -> Result<Self> {
        let mut session = Self::default();
        session.read_metadata(database)?;
        session.read_start(database)?;
        database.each("PROCESSES", "globalPid, name", "", |r| {
            let pid = integer(r, 0).map(ids::pid);
            session.processes.extend(pid.zip(text(r, 1)));
        })?;
        database.each("GPUPROBE_PROCESSES", "globalPid, uid", "", |r| {
            let uid = integer(r, 1).and_then(|uid| u32::try_from(uid).ok());
            session.users.extend(integer(r, 0).map(ids::pid).zip(uid));
        })?;
        let gpus = "TARGET_INFO_GPU";
        let mut id = ["id", "deviceId"].into_iter();
        let id = id.find(|id| database.has_column(gpus, id)).unwrap_or("id");
        database.each(gpus, &format!("{id}, name, uuid"), "", |r| {
            let id = integer(r, 0);
            session.gpus.extend(id.zip(text(r, 1)));
            session.gpu_uuids.extend(id.zip(text(r, 2)));
        })?;
        database.each("ANALYSIS_DETAILS", "stopTime", "", |r| {
            session.stop_ns = session.stop_ns.max(integer(r, 0));
        })?;
        database.each("GPUPROBE_META", "key, val", "", |r| {
            session.notes.extend(text(r, 0).zip(text(r, 1)));
        })?;
        let count = |r: &Row<'_>, column| u64::try_from(integer(r, column)?).ok();
        database.each("GPUPROBE_LOST", "what, count", "", |r| {
            let lost = count(r, 1).filter(|&count| count > 0);
            session.lost.extend(text(r, 0).zip(lost));
        })?;
        let columns = "uid, pid, comm, what, count";
        let most = format!("LIMIT {MAX_LOST_BY_USER}");
        database.each("GPUPROBE_LOST_BY_USER", columns, &most, |r| {
            let small = |column| u32::try_from(integer(r, column)?).ok();
            let loss = small(0).zip(text(r, 3)).zip(count(r, 4));
            session
                .lost_by_user
                .extend(loss.map(|((uid, what), count)| UserLoss {
                    uid,
                    pid: small(1),
                    comm: text(r, 2),
                    what,
                    count,
                }));
        })?;
        Ok(session)
    }

    fn read_metadata(&mut self, database: &Database) -> Result<()> {
        let mut words: BTreeMap<usize, String> = BTreeMap::new();
        for table in ["META_DATA_EXPORT", "EXPORT_META_DATA", "META_DATA_CAPTURE"] {
            database.each(table, "name, value", "", |found| {
                let (Some(name), Some(value)) = (text(found, 0), text(found, 1)) else {
                    return;
                };
                match name.as_str() {
                    "EXPORT_PRODUCT_NAME" => self.product = Some(value),
                    "EXPORT_PRODUCT_VERSION" => self.version = Some(value),
                    "EXPORT_SCHEMA_VERSION" => self.schema = Some(value),
                    "PROCESS_0:COMMAND" => drop(words.insert(0, value)),
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
        let columns = "utcEpochNs, utcTime, localTime";
        database.each(table, columns, "LIMIT 1", |found| {
            self.start_epoch_ns = integer(found, 0);
            let time = |index| parse_time(&text(found, index)?);
            if let (Some(utc), Some(local)) = (time(1), time(2)) {
                self.utc_offset_s = i32::try_from((local - utc).num_seconds()).ok();
            }
        })
    }

    /// The wall-clock time of session time `ns`, in the target's time zone.
    pub fn wall(&self, ns: i64) -> Option<DateTime<FixedOffset>> {
        let start = Utc.timestamp_nanos(self.start_epoch_ns?);
        let zone = FixedOffset::east_opt(self.utc_offset_s.unwrap_or(0))?;
        let time = start.checked_add_signed(TimeDelta::nanoseconds(ns))?;
        Some(time.with_timezone(&zone))
    }

    /// The value of a key of `GPUPROBE_META`; empty if there is none.
    pub(crate) fn note(&self, key: &str) -> &str {
        self.notes.get(key).map_or("", String::as_str)
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::tests::database;

    const TABLES: &str = "
        CREATE TABLE META_DATA_EXPORT (name, value);
        INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_NAME', 'nsys'),
            ('EXPORT_PRODUCT_VERSION', '2026.1'), ('EXPORT_SCHEMA_VERSION', '3.11.2'), ('other', 'x');
        CREATE TABLE META_DATA_CAPTURE (name, value);
        INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ARGUMENT_1', 'b'),
            ('PROCESS_0:ARGUMENT_0', 'a'), ('PROCESS_0:COMMAND', './app'), ('PROCESS_0:ARGUMENT_x', 'c');
        CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs, utcTime, localTime);
        INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES
            (1767225600000000000, '2026-01-01T00:00:00', '2026-01-01 02:00:00.123');
        CREATE TABLE PROCESSES (globalPid, name);
        INSERT INTO PROCESSES VALUES (281491737149440, 'app'), (NULL, 'none');
        CREATE TABLE GPUPROBE_PROCESSES (globalPid, uid);
        INSERT INTO GPUPROBE_PROCESSES VALUES (281491737149440, 1000), (281491737149441, -1);
        CREATE TABLE TARGET_INFO_GPU (deviceId, name, uuid);
        INSERT INTO TARGET_INFO_GPU VALUES (0, 'H100', 'GPU-1'), (1, 'H200', NULL), (2, NULL, 'GPU-3');
        CREATE TABLE ANALYSIS_DETAILS (stopTime);
        INSERT INTO ANALYSIS_DETAILS VALUES (5), (9), (7);
        CREATE TABLE GPUPROBE_META (key, val);
        INSERT INTO GPUPROBE_META VALUES ('memory_events', 'ledger');
        CREATE TABLE GPUPROBE_LOST (what, count);
        INSERT INTO GPUPROBE_LOST VALUES ('memory', 3), ('tasks', 0), ('names', -1), ('copies', 1);
        CREATE TABLE GPUPROBE_LOST_BY_USER (uid, pid, comm, what, count);
        INSERT INTO GPUPROBE_LOST_BY_USER VALUES (1000, 7, 'app', 'memory', 3),
            (1001, NULL, NULL, 'copies', 1), (-1, 7, 'app', 'memory', 3), (1000, 7, 'app', 'memory', -3);";

    #[test]
    fn a_session_has_what_the_tables_say() {
        let session = Session::read(&database(TABLES)).unwrap();
        let said = [
            &session.product,
            &session.version,
            &session.schema,
            &session.command,
        ];
        let expected = ["nsys", "2026.1", "3.11.2", "./app a b"];
        assert_eq!(said.map(|text| text.as_deref().unwrap()), expected);
        assert_eq!(session.schema_major(), Some(3));
        assert_eq!(session.processes, HashMap::from([(999, "app".to_owned())]));
        assert_eq!(session.users, HashMap::from([(999, 1000)]));
        let gpus: Vec<_> = session
            .gpus
            .iter()
            .map(|(id, name)| (*id, name.as_str()))
            .collect();
        assert_eq!(gpus, [(0, "H100"), (1, "H200")]);
        let uuids = [(0, "GPU-1".to_owned()), (2, "GPU-3".to_owned())];
        assert_eq!(session.gpu_uuids, BTreeMap::from(uuids));
        assert_eq!(session.stop_ns, Some(9));
        assert_eq!(session.notes["memory_events"], "ledger");
        let lost: Vec<_> = session
            .lost
            .iter()
            .map(|(what, count)| (what.as_str(), *count))
            .collect();
        assert_eq!(lost, [("copies", 1), ("memory", 3)]);
        let by_user = session
            .lost_by_user
            .iter()
            .map(|loss| (loss.uid, loss.pid, loss.count));
        assert_eq!(
            by_user.collect::<Vec<_>>(),
            [(1000, Some(7), 3), (1001, None, 1)]
        );
    }

    #[test]
    fn session_times_are_in_the_time_zone_of_the_target() {
        let session = Session::read(&database(TABLES)).unwrap();
        assert_eq!(session.start_epoch_ns, Some(1_767_225_600_000_000_000));
        assert_eq!(session.utc_offset_s, Some(7200));
        let wall = session.wall(1_500_000_000).unwrap();
        assert_eq!(wall.to_rfc3339(), "2026-01-01T02:00:01.500+02:00");
        let other = Session::read(&database("")).unwrap();
        assert_eq!(
            (other.wall(0), other.schema_major(), other.command),
            (None, None, None)
        );
        assert!(parse_time("2026-01-01 02:00:00.123").is_some());
        assert!(parse_time("2026-01-01").is_none() && parse_time("2026-01-01_02:00:00").is_none());
    }

    #[test]
    fn losses_by_user_are_read_up_to_a_limit() {
        let rows = "INSERT INTO GPUPROBE_LOST_BY_USER SELECT 1, x, 'app', 'memory', 1 FROM n";
        let read = |count: usize| {
            let sql = format!(
                "CREATE TABLE GPUPROBE_LOST_BY_USER (uid, pid, comm, what, count);
                WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT {count}) {rows}"
            );
            Session::read(&database(&sql)).unwrap().lost_by_user.len()
        };
        assert_eq!(
            [read(10), read(MAX_LOST_BY_USER + 1)],
            [10, MAX_LOST_BY_USER]
        );
    }
}
