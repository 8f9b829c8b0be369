//! Counts and remarks at the end of a recording.

use super::Rows;
use rusqlite::params;

impl Rows<'_> {
    /// Final keys and values of `GPUPROBE_META`.
    pub(crate) fn remarks(&self) -> Vec<(&'static str, String)> {
        let mut remarks = vec![
            ("calls", self.calls().to_string()),
            (
                "allocations_on_unknown_devices",
                self.unknown_devices.to_string(),
            ),
        ];
        if let Some(activities) = &self.activities {
            remarks.push(("gpu_work_without_times", activities.untimed().to_string()));
        }
        remarks
    }

    /// Writes the current counters.
    pub(crate) fn write_counts(&mut self) -> rusqlite::Result<()> {
        self.launches.write_counts(&mut self.common.tables)?;
        let tables = &mut self.common.tables;
        let sql = "UPDATE ANALYSIS_DETAILS SET duration = ?1, stopTime = ?1";
        tables.execute(sql, [self.common.last_ns])?;
        let dropped = ("recording", &self.dropped);
        let lost = self.lost.iter().map(|(what, count)| (what.as_str(), count));
        for (what, count) in lost.chain([dropped]) {
            let sql = "INSERT OR REPLACE INTO GPUPROBE_LOST VALUES (?, ?)";
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            tables.execute(sql, params![what, count])?;
        }
        if let Some(losses) = self.lost_by_user.take() {
            tables.execute("DELETE FROM GPUPROBE_LOST_BY_USER", [])?;
            for loss in losses {
                let count = i64::try_from(loss.count).unwrap_or(i64::MAX);
                let row = params![loss.uid, loss.pid, loss.comm, loss.what, count];
                tables.insert("GPUPROBE_LOST_BY_USER", row)?;
            }
        }
        Ok(())
    }
}
