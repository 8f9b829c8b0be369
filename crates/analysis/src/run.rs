//! Descriptions of a run for pictures: command, GPU and time.

use std::collections::BTreeMap;

use chrono::{DateTime, FixedOffset};
use gpuprobe_recording::Session;

/// A description, as far as known: `python3 train.py, 2 x NVIDIA H200, 2026-11-20 20:34`.
pub fn describe_run(
    command: Option<String>,
    gpus: impl IntoIterator<Item = String>,
    time: Option<DateTime<FixedOffset>>,
) -> Option<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for name in gpus {
        *counts.entry(name).or_default() += 1;
    }
    let one = |(name, count): (String, usize)| match count {
        1 => name,
        count => format!("{count} x {name}"),
    };
    let models: Vec<_> = counts.into_iter().map(one).collect();
    let date = time.map(|time| time.format("%Y-%m-%d %H:%M").to_string());
    let parts = [command, Some(models.join(" and ")), date].into_iter();
    let parts: Vec<_> = parts.flatten().filter(|part| !part.is_empty()).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The description of a file's run.
pub(crate) fn run_of(session: &Session) -> Option<String> {
    let gpus = session.gpus.values().cloned();
    describe_run(session.command.clone(), gpus, session.wall(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn describes_a_run_as_far_as_known() {
        assert_eq!(run_of(&Session::default()), None);
        let gpu = |id: i64| (id, "NVIDIA H200".to_owned());
        let session = Session {
            command: Some("python3 train.py".into()),
            start_epoch_ns: Some(1_795_293_240_000_000_000),
            utc_offset_s: Some(0),
            gpus: [gpu(0), gpu(1)].into(),
            ..Session::default()
        };
        assert_eq!(
            run_of(&session).as_deref(),
            Some("python3 train.py, 2 x NVIDIA H200, 2026-11-21 20:34")
        );
    }
}
