//! Everything about a file on one page.

use anyhow::Result;
use serde::Serialize;

use super::activity::{self, Copies, Kernels, Work};
use super::groups::Group;
use super::listing::{Listing, Which, listing};
use super::{Selection, Tracker};
use crate::activity::ActivitySummary;
use gpuprobe_recording::{Database, Session};

/// The page.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Version of the JSON form: 1.
    pub schema: u32,
    /// `summary`.
    pub analysis: &'static str,
    /// What the file says about itself.
    pub session: Session,
    /// From the first to the last memory event.
    pub seconds: Option<f64>,
    /// The highest point; none without memory events.
    pub watermark: Option<Listing>,
    /// What was never freed; none without memory events.
    pub leakage: Option<Listing>,
    /// What was launched.
    pub kernels: Kernels,
    /// What was copied.
    pub copies: Vec<Copies>,
    /// The sums of a live report: of runs, calls, waits and overhead; none if the file has neither.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<ActivitySummary>,
}

/// Makes the page; `tracker` is none if there are no memory events.
///
/// # Errors
/// Those of the file.
pub fn summary(
    database: &Database,
    session: &Session,
    tracker: Option<&Tracker>,
    selection: &Selection,
) -> Result<Summary> {
    let listed = |which| {
        let list = |tracker| listing(which, database, session, tracker, selection, true);
        tracker.map(list).transpose()
    };
    let work = Work::read(database, session, selection)?;
    let ends = tracker.and_then(|tracker| tracker.first_ns().zip(tracker.last_ns()));
    Ok(Summary {
        schema: 1,
        analysis: "summary",
        session: session.clone(),
        seconds: ends.map(|(first, last)| last.saturating_sub(first) as f64 / 1e9),
        watermark: listed(Which::Watermark)?,
        leakage: listed(Which::Leakage)?,
        kernels: activity::kernels(database, selection, &work)?,
        copies: activity::copies(database, selection, &work)?,
        activity: work.summary(None),
    })
}

/// The largest groups, and what the others add up to.
pub fn largest(groups: &[Group], count: usize) -> (&[Group], u64) {
    let (first, rest) = groups.split_at(count.min(groups.len()));
    (
        first,
        rest.iter()
            .fold(0, |sum, group| sum.saturating_add(group.bytes)),
    )
}
