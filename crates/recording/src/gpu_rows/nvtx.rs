//! NVTX ranges and markers, converted to the start and end markers that CUPTI delivers live.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use gpuprobe_cuda::nsys::event_type::{DOMAIN, MARK, PUSH_POP, START_END};
use gpuprobe_model::activity::ActivityRecord;
use gpuprobe_wire as wire;
use rusqlite::Row;

use super::{Reader, record_ns};
use crate::row::{integer, text};
use crate::{Database, Resolver, ids};

const TABLE: &str = "NVTX_EVENTS";

/// The text of a row, in the row itself or as a string id in the column behind it.
fn text_of(row: &Row<'_>, index: usize, names: &Resolver<'_>) -> Option<Arc<str>> {
    let own = text(row, index).map(Arc::from);
    own.or_else(|| integer(row, index + 1).map(|id| names.string(id)))
}

impl Reader<'_> {
    /// Passes on the NVTX ranges and markers.
    pub(super) fn nvtx(&mut self) -> Result<()> {
        let database = self.database;
        let domains = nvtx_domains(database, &self.names)?;
        let columns = "start, end, eventType, globalTid, text, textId, domainId";
        let mut id = 0u32;
        database.each(TABLE, columns, "", |row| {
            let (Some(start), Some(kind), Some(thread)) =
                (integer(row, 0), integer(row, 2), integer(row, 3))
            else {
                return;
            };
            let is_wanted = matches!(kind, MARK | PUSH_POP | START_END);
            if !is_wanted || !self.filter.includes(Some(ids::process_of(thread)), None) {
                return;
            }
            let pid = ids::pid(thread);
            let name = text_of(row, 4, &self.names);
            let domain = integer(row, 6).and_then(|domain| domains.get(&(pid, domain)).cloned());
            id = id.wrapping_add(1);
            let mut push = |time: i64, flags: u32| {
                let marker = wire::Marker {
                    time_ns: record_ns(time),
                    flags,
                    id,
                    ..wire::Marker::default()
                };
                let names = [name.clone(), domain.clone()];
                self.push(pid, ActivityRecord::Marker(marker), names);
            };
            if kind == MARK {
                push(start, wire::marker::INSTANTANEOUS);
                return;
            }
            push(start, wire::marker::START);
            if let Some(end) = integer(row, 1) {
                push(end.max(start), wire::marker::END);
            }
        })
    }
}

/// Names of domains by process and number.
pub fn nvtx_domains(
    database: &Database,
    names: &Resolver<'_>,
) -> Result<HashMap<(u32, i64), Arc<str>>> {
    let mut domains = HashMap::new();
    let columns = "eventType, domainId, text, textId, globalTid";
    database.each(TABLE, columns, "", |row| {
        let (Some(DOMAIN), Some(id)) = (integer(row, 0), integer(row, 1)) else {
            return;
        };
        let pid = integer(row, 4).map_or(0, ids::pid);
        let name = text_of(row, 2, names);
        domains.extend(name.map(|name| ((pid, id), name)));
    })?;
    Ok(domains)
}
