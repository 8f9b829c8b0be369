//! Verdict of `doctor`: the features that work on this machine, and why the others do not.

/// Results of the checks.
#[derive(Clone, Debug, Default)]
pub(super) struct MachineFacts {
    /// Why attaching fails, with what to do about it; `None` if it works.
    pub(super) no_attaching: Option<String>,
    /// A libcupti is in one of the usual folders.
    pub(super) has_cupti: bool,
    /// NVML could be loaded.
    pub(super) has_nvml: bool,
}

/// A feature: name, whether its requirements beside attaching are met, and the message if they are not.
type Feature = (&'static str, fn(&MachineFacts) -> bool, &'static str);

const FEATURES: [Feature; 6] = [
    ("memory", |_| true, ""),
    ("launches", |_| true, ""),
    ("copies", |_| true, ""),
    ("stacks", |_| true, ""),
    (
        "activity",
        |found| found.has_cupti,
        "no libcupti found; install the CUDA toolkit's (cuda-cupti), or set GPUPROBE_CUPTI, unless the \
         program brings one along, as PyTorch does",
    ),
    (
        "nvidia-smi's numbers",
        |found| found.has_nvml,
        "NVML does not work; install NVIDIA's driver with libnvidia-ml.so.1",
    ),
];

/// Whether anything can be traced, and a line with the verdict.
pub(super) fn verdict(found: &MachineFacts) -> (bool, String) {
    let attaches = found.no_attaching.is_none();
    let mut ready = Vec::new();
    // Features with the same reason are listed together.
    let mut missing: Vec<(Vec<&str>, &str)> = Vec::new();
    for (name, works, reason) in FEATURES {
        let reason = match &found.no_attaching {
            Some(why) if name != "nvidia-smi's numbers" => why,
            _ if works(found) => {
                ready.push(name);
                continue;
            }
            _ => reason,
        };
        match missing.last_mut() {
            Some((names, last)) if *last == reason => names.push(name),
            _ => missing.push((vec![name], reason)),
        }
    }
    let ready = match ready.is_empty() || !attaches {
        true => "nothing".to_owned(),
        false => ready.join(", "),
    };
    let mut line = format!("Ready: {ready}.");
    if !missing.is_empty() {
        let with_reason =
            |(names, why): &(Vec<&str>, &str)| format!("{} ({why})", names.join(", "));
        let missing: Vec<_> = missing.iter().map(with_reason).collect();
        line.push_str(&format!(" Not ready: {}.", missing.join("; ")));
    }
    (attaches, line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> MachineFacts {
        MachineFacts {
            no_attaching: None,
            has_cupti: true,
            has_nvml: true,
        }
    }

    #[test]
    fn the_verdict_lists_ready_and_missing_features() {
        let whole = "Ready: memory, launches, copies, stacks, activity, nvidia-smi's numbers.";
        assert_eq!(verdict(&all()), (true, whole.to_owned()));
        let no_cupti = MachineFacts {
            has_cupti: false,
            ..all()
        };
        let (works, line) = verdict(&no_cupti);
        let begins = "Ready: memory, launches, copies, stacks, nvidia-smi's numbers. \
                      Not ready: activity (no libcupti found; install ";
        assert!(works && line.starts_with(begins), "{line}");
        let two = MachineFacts {
            has_cupti: false,
            has_nvml: false,
            ..all()
        };
        let (works, line) = verdict(&two);
        let begins = "Ready: memory, launches, copies, stacks. Not ready: activity (no libcupti";
        assert!(works && line.starts_with(begins), "{line}");
        assert!(
            line.contains("PyTorch does); nvidia-smi's numbers (NVML"),
            "{line}"
        );
    }

    #[test]
    fn nothing_is_ready_if_attaching_fails() {
        let found = MachineFacts {
            no_attaching: Some("no right to load BPF programs; run as root (sudo)".to_owned()),
            ..all()
        };
        let line = "Ready: nothing. Not ready: memory, launches, copies, stacks, activity \
                    (no right to load BPF programs; run as root (sudo)).";
        assert_eq!(verdict(&found), (false, line.to_owned()));
    }
}
