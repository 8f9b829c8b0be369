//! Labels of series.

use crate::public::without_addresses;
use gpuprobe_engine::Process;
use gpuprobe_engine::transfers::CopyFilter;
use gpuprobe_model::container::pod_uid_in;
use gpuprobe_model::text::printable;

/// Names and values of the labels of a series, in order.
pub(super) type Labels = Vec<(&'static str, String)>;

/// Value of labels where several series are summed.
pub(super) const OTHER: &str = "other";
/// Kernels and call sites without a name.
pub(super) const UNKNOWN: &str = "unknown";

/// Labels of which every process has its own values: where processes are summed, they are `other`.
const OWN: &[&str] = &[
    "pid",
    "comm",
    "uid",
    "container_id",
    "pod_uid",
    "owner",
    "site",
    "kernel",
];

/// Maximum number of characters of a label's value.
const MAX_CHARACTERS: usize = 160;

/// `text`, which a traced program may have chosen, as a label's value: without control characters, and of
/// limited length.
pub(super) fn clean(text: &str) -> String {
    let text = printable(text);
    match text.char_indices().nth(MAX_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// [`clean`], without addresses: offsets in a file remain.
pub(super) fn clean_name(text: &str) -> String {
    let kept = without_addresses(text);
    match kept.trim_matches(|c: char| c == '?' || c == '@' || c.is_whitespace()) {
        "" => UNKNOWN.to_owned(),
        _ => clean(&kept),
    }
}

/// Labels of a traced process.
pub(super) fn of_process(process: &Process) -> Labels {
    let identity = &process.identity;
    of_pid(
        process.pid,
        process.comm.as_deref(),
        process.uid,
        identity.container.as_deref(),
        identity.cgroup.as_deref(),
    )
}

/// The labels that all series of a process have.
pub(super) fn of_pid(
    pid: u32,
    comm: Option<&str>,
    uid: Option<u32>,
    container: Option<&str>,
    cgroup: Option<&str>,
) -> Labels {
    let text = |text: Option<&str>| text.map(clean).unwrap_or_default();
    let pod = cgroup.and_then(pod_uid_in);
    vec![
        ("pid", pid.to_string()),
        ("comm", text(comm)),
        ("uid", uid.map(|uid| uid.to_string()).unwrap_or_default()),
        ("container_id", text(container)),
        ("pod_uid", text(pod.as_deref())),
    ]
}

/// Labels of copies.
pub(super) fn of_copies(which: &CopyFilter) -> Labels {
    vec![
        ("direction", which.direction.name().to_owned()),
        ("mode", which.mode.name().to_owned()),
    ]
}

/// The labels of the sum of which a series of a process is a part.
pub(super) fn summed(process: &Labels, labels: &Labels) -> Labels {
    let all = process.iter().chain(labels);
    let summed = all.map(|(name, value)| match OWN.contains(name) {
        true => (*name, OTHER.to_owned()),
        false => (*name, value.clone()),
    });
    summed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_addresses() {
        for (name, cleaned) in [
            ("train.py:58 training_step", "train.py:58 training_step"),
            ("0x7f1234567890", UNKNOWN),
            ("0x401136", UNKNOWN),
            ("load.c:7 load @0x7f1234567890", "load.c:7 load @?"),
            ("app+0x1a3", "app+0x1a3"),
            ("[jit]+0x7f1234567890 < main", "[jit]+? < main"),
            ("half0xmas", "half0xmas"),
            ("", UNKNOWN),
            ("a\nb\u{202e}", "a\\nb\\u{202e}"),
        ] {
            assert_eq!(clean_name(name), cleaned, "{name}");
        }
    }

    #[test]
    fn values_are_of_limited_length() {
        let long = "線".repeat(1000);
        assert_eq!(clean(&long).chars().count(), MAX_CHARACTERS + 1);
        assert_eq!(clean("short"), "short");
    }
}
