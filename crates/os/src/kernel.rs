//! The kernel that runs.

use std::sync::LazyLock;

/// Its release, as `uname -r` prints it; empty if it does not say.
pub fn release() -> &'static str {
    static RELEASE: LazyLock<String> = LazyLock::new(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        text.trim().to_owned()
    });
    &RELEASE
}
