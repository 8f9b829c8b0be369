//! Counts and remarks at the end of a recording.

use super::Rows;
use gpuprobe_model::UserLoss;
use rusqlite::params;

impl<'c> Rows<'c> {
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
            let without = activities.without_calls;
            remarks.push(("gpu_work_without_calls", without.to_string()));
            remarks.push(("gpu_work_without_times", activities.untimed().to_string()));
        }
        remarks
    }

    /// Writes the current counters.
    pub(crate) fn write_counts(&mut self) -> rusqlite::Result<()> {
        self.launches.write_counts()?;
        let sql = "UPDATE ANALYSIS_DETAILS SET duration = ?1, stopTime = ?1";
        self.connection.execute(sql, [self.last_ns()])?;
        let dropped = ("recording", &self.dropped);
        let lost = self.lost.iter().map(|(what, count)| (what.as_str(), count));
        for (what, count) in lost.chain([dropped]) {
            let sql = "INSERT OR REPLACE INTO GPUPROBE_LOST VALUES (?, ?)";
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            self.connection.execute(sql, params![what, count])?;
        }
        if let Some(losses) = self.lost_by_user.take() {
            self.write_lost_by_user(&losses)?;
        }
        Ok(())
    }

    fn write_lost_by_user(&self, losses: &[UserLoss]) -> rusqlite::Result<()> {
        let clear = "DELETE FROM GPUPROBE_LOST_BY_USER";
        self.connection.execute(clear, [])?;
        let sql = "INSERT INTO GPUPROBE_LOST_BY_USER VALUES (?, ?, ?, ?, ?)";
        for loss in losses {
            let count = i64::try_from(loss.count).unwrap_or(i64::MAX);
            let row = params![loss.uid, loss.pid, loss.comm, loss.what, count];
            self.connection.execute(sql, row)?;
        }
        Ok(())
    }
}
