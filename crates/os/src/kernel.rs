//! Information on the running kernel.

use std::sync::LazyLock;

/// Kernel release, as `uname -r` prints it; empty if unknown.
pub fn release() -> &'static str {
    static RELEASE: LazyLock<String> = LazyLock::new(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        text.trim().to_owned()
    });
    &RELEASE
}
