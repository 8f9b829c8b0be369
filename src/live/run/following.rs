//! Following the processes: scans, and the answers of the prober.

use super::super::discovery::ScanContext;
use super::super::output::OutputReader;
use super::Run;
use anyhow::Result;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum time of process scans between two reads of the rings: a program with 100,000 calls per second
/// fills a tenth of the memory ring in ten times that.
const SCAN_FOR: Duration = Duration::from_millis(20);

impl Run<'_> {
    /// Takes the answers of the prober that have come within this time.
    pub(super) fn settle(&mut self, mut within: Duration) {
        while self.failed.is_none() {
            let outcome = match self.tracer.probe.answer(within) {
                Ok(Some(outcome)) => outcome,
                Ok(None) => return,
                Err(error) => {
                    self.failed = Some(error);
                    return;
                }
            };
            match self.tracer.settle(outcome) {
                Ok(settled) => self.discovery.settled(&mut self.tracer, settled),
                Err(Some(other)) => {
                    if let Some(stacks) = &mut self.sink.stacks {
                        stacks.answered(other, &self.tracer.probe);
                    }
                }
                Err(None) => {}
            }
            within = Duration::ZERO;
        }
    }

    /// Scans the processes of new notices and resumes held ones, for at most [`SCAN_FOR`]; if scans are
    /// left, reads the rings first.
    pub(super) fn follow_notices(&mut self) -> Result<OutputReader> {
        self.settle(Duration::ZERO);
        let until = (Instant::now() + SCAN_FOR).into_std();
        let with = ScanContext {
            rings: &mut self.rings,
            tracer: &mut self.tracer,
            stacks: self.sink.stacks.as_mut(),
        };
        if self.discovery.follow(with, until)? {
            Ok(OutputReader::Reading)
        } else {
            self.read()
        }
    }

    /// Scans until no scan is left, for at most this long.
    pub(super) fn follow_all(&mut self, at_most: Duration) -> Result<()> {
        let end = Instant::now() + at_most;
        self.follow_notices()?;
        while (self.discovery.is_busy() || self.discovery.is_waiting()) && Instant::now() < end {
            if !self.discovery.is_busy() {
                self.settle(SCAN_FOR);
            }
            self.follow_notices()?;
        }
        Ok(())
    }
}
