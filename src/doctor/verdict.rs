//! Verdict of `doctor`: the features that work on this machine, and why the others do not.

const NO_CUPTI: &str = "no libcupti found; install the CUDA toolkit's (cuda-cupti), or set GPUPROBE_CUPTI, unless the \
    program brings one along, as PyTorch does";
const NO_NVML: &str = "NVML does not work; install NVIDIA's driver with libnvidia-ml.so.1";

/// A line with the verdict. `no_attaching` says why attaching fails, if it does, with what to do about it.
pub(super) fn verdict(no_attaching: Option<&str>, has_cupti: bool, has_nvml: bool) -> String {
    let no_cupti = (!has_cupti).then_some(NO_CUPTI);
    let features = [
        ("memory", no_attaching),
        ("launches", no_attaching),
        ("copies", no_attaching),
        ("stacks", no_attaching),
        ("activity", no_attaching.or(no_cupti)),
        ("nvidia-smi's numbers", (!has_nvml).then_some(NO_NVML)),
    ];
    let names = |some: &[(&'static str, Option<&str>)]| {
        let names = some.iter().map(|one| one.0);
        names.collect::<Vec<_>>().join(", ")
    };
    let ready: Vec<_> = features.into_iter().filter(|one| one.1.is_none()).collect();
    let ready = match no_attaching {
        Some(_) => "nothing".to_owned(),
        None => names(&ready),
    };
    // Features with the same reason are listed together.
    let groups = features.chunk_by(|one, next| one.1 == next.1);
    let missing = groups.filter_map(|group| Some(format!("{} ({})", names(group), group[0].1?)));
    match missing.collect::<Vec<_>>().join("; ") {
        none if none.is_empty() => format!("Ready: {ready}."),
        missing => format!("Ready: {ready}. Not ready: {missing}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_lists_ready_and_missing_features() {
        let whole = "Ready: memory, launches, copies, stacks, activity, nvidia-smi's numbers.";
        assert_eq!(verdict(None, true, true), whole);
        let line = verdict(None, false, true);
        let begins = "Ready: memory, launches, copies, stacks, nvidia-smi's numbers. \
                      Not ready: activity (no libcupti found; install ";
        assert!(line.starts_with(begins), "{line}");
        let line = verdict(None, false, false);
        let begins = "Ready: memory, launches, copies, stacks. Not ready: activity (no libcupti";
        assert!(line.starts_with(begins), "{line}");
        assert!(
            line.contains("PyTorch does); nvidia-smi's numbers (NVML"),
            "{line}"
        );
    }

    #[test]
    fn nothing_is_ready_if_attaching_fails() {
        let why = "no right to load BPF programs; run as root (sudo)";
        let line = "Ready: nothing. Not ready: memory, launches, copies, stacks, activity \
                    (no right to load BPF programs; run as root (sudo)).";
        assert_eq!(verdict(Some(why), true, true), line);
    }
}
