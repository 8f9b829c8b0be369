//! What a picture is of: which command, on which GPU, when.

use std::collections::BTreeMap;

use gpuprobe_recording::Session;

/// `python3 train.py, NVIDIA H200, 2026-11-20 20:34`, as far as the file says it.
pub(super) fn of(session: &Session) -> Option<String> {
    let date = session
        .wall(0)
        .map(|time| time.format("%Y-%m-%d %H:%M").to_string());
    let parts = [session.command.clone(), gpus(session), date];
    let parts: Vec<_> = parts
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty())
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The models, each once: `2 x NVIDIA H200`.
fn gpus(session: &Session) -> Option<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in session.gpus.values() {
        *counts.entry(name).or_default() += 1;
    }
    let one = |(name, count): (&str, usize)| match count {
        1 => name.to_owned(),
        count => format!("{count} x {name}"),
    };
    let models: Vec<_> = counts.into_iter().map(one).collect();
    (!models.is_empty()).then(|| models.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_far_as_the_file_says_it() {
        assert_eq!(of(&Session::default()), None);
        let gpu = |id: i64| (id, "NVIDIA H200".to_owned());
        let session = Session {
            command: Some("python3 train.py".into()),
            start_epoch_ns: Some(1_795_293_240_000_000_000),
            utc_offset_s: Some(0),
            gpus: [gpu(0), gpu(1)].into(),
            ..Session::default()
        };
        assert_eq!(
            of(&session).as_deref(),
            Some("python3 train.py, 2 x NVIDIA H200, 2026-11-21 20:34")
        );
    }
}
