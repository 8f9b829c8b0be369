//! Headings of the help.
#![cfg_attr(not(feature = "live"), allow(dead_code))]

/// Modes, and which of their events are reported.
pub(super) const TRACE: &str = "What to trace";
/// Processes.
pub(super) const TARGETS: &str = "Targets";
/// How stacks are taken, shown and written.
pub(super) const STACKS: &str = "Call stacks";
/// Reports: contents, format and destination.
pub(super) const OUTPUT: &str = "Output";
/// Recordings that are written.
pub(super) const RECORDING: &str = "Recording";
/// How clients reach what is served.
pub(super) const SERVING: &str = "Serving";
/// Rarely needed, under `--help` only.
pub(super) const ADVANCED: &str = "Advanced";
