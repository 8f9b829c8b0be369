//! Readiness of the rings.

use crate::probe::{Probe, Rings};
use anyhow::Result;
use std::future;
use std::os::fd::OwnedFd;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

/// Readiness of the rings that are read together.
pub(super) struct Watched {
    memory: AsyncFd<OwnedFd>,
    activity: AsyncFd<OwnedFd>,
    batches: Option<AsyncFd<OwnedFd>>,
    stacks: Option<AsyncFd<OwnedFd>>,
}

impl Watched {
    pub(super) fn of(rings: &Rings) -> Result<Self> {
        Ok(Self {
            memory: rings.watch_memory()?,
            activity: rings.watch_activity()?,
            batches: rings.watch_batches()?,
            stacks: rings.watch_stacks()?,
        })
    }

    /// Completes when one of the rings has a record.
    pub(super) async fn arrived(&self) -> std::io::Result<()> {
        let mut guard = tokio::select! {
            biased;
            guard = self.memory.readable() => guard,
            guard = self.activity.readable() => guard,
            guard = readable(self.batches.as_ref()) => guard,
            guard = readable(self.stacks.as_ref()) => guard,
        }?;
        guard.clear_ready();
        Ok(())
    }
}

/// Readiness of what scans follow from: notices, and answers of the prober.
pub(super) struct Followed {
    notices: AsyncFd<OwnedFd>,
    answers: AsyncFd<OwnedFd>,
}

impl Followed {
    pub(super) fn of(rings: &Rings, probe: &Probe) -> Result<Self> {
        Ok(Self {
            notices: rings.watch_control()?,
            answers: probe.watch_answers()?,
        })
    }

    /// Completes when there is a notice or an answer.
    pub(super) async fn arrived(&self) -> std::io::Result<()> {
        let mut guard = tokio::select! {
            guard = self.notices.readable() => guard,
            guard = self.answers.readable() => guard,
        }?;
        guard.clear_ready();
        Ok(())
    }
}

/// Completes when `ring` has a record; never, if it is `None`.
async fn readable(
    ring: Option<&AsyncFd<OwnedFd>>,
) -> std::io::Result<AsyncFdReadyGuard<'_, OwnedFd>> {
    match ring {
        Some(ring) => ring.readable().await,
        None => future::pending().await,
    }
}
