//! Headings of the help.

/// Modes, and which of their events are reported.
#[cfg(feature = "live")]
pub(super) const TRACE: &str = "What to trace";
/// Processes.
#[cfg(feature = "live")]
pub(super) const TARGETS: &str = "Targets";
/// How stacks are taken, shown and written.
pub(super) const STACKS: &str = "Call stacks";
/// Reports: contents, format and destination.
pub(super) const OUTPUT: &str = "Output";
/// Recordings that are written.
#[cfg(feature = "live")]
pub(super) const RECORDING: &str = "Recording";
/// How clients reach what is served.
#[cfg(feature = "live")]
pub(super) const SERVING: &str = "Serving";
/// Rarely needed, under `--help` only.
#[cfg(feature = "live")]
pub(super) const ADVANCED: &str = "Advanced";
