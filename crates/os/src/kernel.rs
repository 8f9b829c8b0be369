//! Information on the running kernel.

use nix::sys::utsname::uname;

/// Kernel release, as `uname -r` prints it; empty if unknown.
pub fn release() -> String {
    uname().map_or(String::new(), |it| {
        it.release().to_string_lossy().into_owned()
    })
}
