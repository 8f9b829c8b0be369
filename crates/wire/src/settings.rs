//! Settings of the collector, passed through [`crate::SETTINGS_VARIABLE`]:
//! `kinds=kernel,memcpy;buffer=8388608;flush_ms=100;tracer=4242:1861337:4026531836`.
//!
//! Both ends come from one build, so unknown settings are errors.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// All settings of the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireSettings {
    /// Kinds of activity to collect.
    pub kinds: ActivityKinds,
    /// Size of a CUPTI activity buffer, bytes.
    pub buffer_bytes: usize,
    /// Flush period of completed records, milliseconds.
    pub flush_ms: u32,
    /// Tracing process; the collector stops when it exits. `None`: the collector runs until its own
    /// process exits.
    pub tracer: Option<TracerId>,
}

/// Identity of a process that is not confused with a later process of the same PID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracerId {
    /// Process id in its own PID namespace.
    pub pid: u32,
    /// Start time: field 22 of its `/proc/PID/stat`, clock ticks since boot.
    pub start_ticks: u64,
    /// Inode of its `/proc/PID/ns/pid`: the process id is only valid in this namespace.
    pub namespace: u64,
}

/// Default of [`WireSettings::buffer_bytes`], in bytes.
pub const BUFFER_BYTES: usize = 8 << 20;
/// Accepted range of [`WireSettings::buffer_bytes`].
pub const BUFFER_BYTES_RANGE: RangeInclusive<usize> = 64 << 10..=1 << 30;
/// Default of [`WireSettings::flush_ms`], in milliseconds.
pub const FLUSH_MS: u32 = 100;
/// Accepted range of [`WireSettings::flush_ms`].
pub const FLUSH_MS_RANGE: RangeInclusive<u32> = 1..=60_000;

impl Default for WireSettings {
    fn default() -> Self {
        Self {
            kinds: ActivityKinds::USUAL,
            buffer_bytes: BUFFER_BYTES,
            flush_ms: FLUSH_MS,
            tracer: None,
        }
    }
}

impl fmt::Display for WireSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "kinds={};buffer={};flush_ms={}",
            self.kinds, self.buffer_bytes, self.flush_ms
        )?;
        if let Some(tracer) = self.tracer {
            let (pid, start_ticks) = (tracer.pid, tracer.start_ticks);
            write!(f, ";tracer={pid}:{start_ticks}:{}", tracer.namespace)?;
        }
        Ok(())
    }
}

impl FromStr for WireSettings {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut settings = Self::default();
        for part in text.split(';') {
            let wrong = || format!("{part:?}: no such setting");
            let (key, value) = part.split_once('=').ok_or_else(wrong)?;
            match key {
                "kinds" => settings.kinds = value.parse()?,
                "buffer" => {
                    settings.buffer_bytes = number(value, &BUFFER_BYTES_RANGE).ok_or_else(wrong)?;
                }
                "flush_ms" => {
                    settings.flush_ms = number(value, &FLUSH_MS_RANGE).ok_or_else(wrong)?;
                }
                "tracer" => settings.tracer = Some(tracer(value).ok_or_else(wrong)?),
                _ => return Err(wrong()),
            }
        }
        Ok(settings)
    }
}

fn tracer(text: &str) -> Option<TracerId> {
    let mut words = text.split(':');
    let tracer = TracerId {
        pid: words.next()?.parse().ok()?,
        start_ticks: words.next()?.parse().ok()?,
        namespace: words.next()?.parse().ok()?,
    };
    words.next().is_none().then_some(tracer)
}

fn number<T: FromStr + PartialOrd>(text: &str, range: &RangeInclusive<T>) -> Option<T> {
    text.parse().ok().filter(|number| range.contains(number))
}

/// A kind of activity that can be collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedKind {
    /// Name on the command line.
    pub name: &'static str,
    /// Activity kinds of CUPTI for it: the first that can be enabled is used.
    pub cupti: &'static [u32],
    /// Description in the help.
    pub about: &'static str,
}

/// Values of CUPTI's enum `CUpti_ActivityKind`.
pub mod cupti_kind {
    #![allow(missing_docs, reason = "named as in cupti_activity.h")]
    pub const MEMCPY: u32 = 1;
    pub const MEMSET: u32 = 2;
    pub const KERNEL: u32 = 3;
    pub const DRIVER: u32 = 4;
    pub const RUNTIME: u32 = 5;
    pub const DEVICE: u32 = 8;
    pub const CONTEXT: u32 = 9;
    pub const CONCURRENT_KERNEL: u32 = 10;
    pub const NAME: u32 = 11;
    pub const MARKER: u32 = 12;
    pub const OVERHEAD: u32 = 17;
    pub const MEMCPY2: u32 = 22;
    pub const STREAM: u32 = 37;
    pub const SYNCHRONIZATION: u32 = 38;
    pub const EXTERNAL_CORRELATION: u32 = 39;
    pub const INTERNAL_LAUNCH_API: u32 = 48;
    pub const MEMORY2: u32 = 49;
    pub const MEMORY_POOL: u32 = 50;
    pub const GRAPH_TRACE: u32 = 51;
}

use cupti_kind as cupti;

const fn named(name: &'static str, cupti: &'static [u32], about: &'static str) -> NamedKind {
    NamedKind { name, cupti, about }
}

// CUPTI's KERNEL serializes kernels, which changes the timing that is observed; it is used only
// where CONCURRENT_KERNEL is not available, for either name.
/// All kinds of activity, in the order in which they are enabled.
#[rustfmt::skip]
pub const NAMED_KINDS: &[NamedKind] = &[
    named("device", &[cupti::DEVICE], "the GPUs"),
    named("context", &[cupti::CONTEXT], "contexts"),
    named("stream", &[cupti::STREAM], "streams, as they are created"),
    named("name", &[cupti::NAME], "NVTX names"),
    named("driver", &[cupti::DRIVER], "calls of the driver"),
    named("runtime", &[cupti::RUNTIME], "calls of the runtime"),
    named("memcpy", &[cupti::MEMCPY], "copies"),
    named("memcpy2", &[cupti::MEMCPY2], "copies between GPUs"),
    named("memset", &[cupti::MEMSET], "memory sets"),
    named("kernel", &[cupti::CONCURRENT_KERNEL, cupti::KERNEL], "kernels"),
    named("concurrent_kernel", &[cupti::CONCURRENT_KERNEL, cupti::KERNEL], "the same as kernel"),
    named("memory", &[cupti::MEMORY2], "allocations and releases"),
    named("memory_pool", &[cupti::MEMORY_POOL], "memory pools"),
    named("sync", &[cupti::SYNCHRONIZATION], "synchronizations"),
    named("graph", &[cupti::GRAPH_TRACE], "whole graphs, instead of their nodes"),
    named("overhead", &[cupti::OVERHEAD], "overhead of tracing"),
    named("external_correlation", &[cupti::EXTERNAL_CORRELATION], "ids assigned by other profilers"),
    named("marker", &[cupti::MARKER], "NVTX ranges and markers"),
];

/// A set of [`NAMED_KINDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivityKinds(u32);

impl ActivityKinds {
    /// All kinds but `graph`: with it, CUPTI reports no kernels and copies that are nodes of a
    /// graph, and their counts would no longer be what the GPU executed.
    pub const USUAL: Self = Self(Self::ALL.0 & !(1 << GRAPH));
    /// The set of all kinds.
    pub const ALL: Self = Self((1 << NAMED_KINDS.len()) - 1);
    /// The set without any kind.
    pub const NONE: Self = Self(0);

    /// Adds the kind with this name.
    ///
    /// # Errors
    /// Returns a message with the valid names if there is no such kind.
    pub fn with(self, name: &str) -> Result<Self, String> {
        let index = NAMED_KINDS.iter().position(|kind| kind.name == name);
        let index = index.ok_or_else(|| {
            let known: Vec<_> = NAMED_KINDS.iter().map(|kind| kind.name).collect();
            format!("{name:?}: expected one of {}", known.join(", "))
        })?;
        Ok(Self(self.0 | 1 << index))
    }

    /// The kinds in the set.
    pub fn iter(self) -> impl Iterator<Item = &'static NamedKind> {
        let wanted = move |&(index, _): &(usize, _)| self.0 >> index & 1 != 0;
        NAMED_KINDS
            .iter()
            .enumerate()
            .filter(wanted)
            .map(|(_, kind)| kind)
    }

    /// Whether the kind with this name is in the set.
    #[must_use]
    pub fn contains(self, name: &str) -> bool {
        self.iter().any(|kind| kind.name == name)
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Index of `graph` in [`NAMED_KINDS`].
const GRAPH: usize = 14;
const _: () = assert!(NAMED_KINDS[GRAPH].cupti[0] == cupti::GRAPH_TRACE);

impl fmt::Display for ActivityKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(|kind| kind.name).collect();
        f.write_str(&names.join(","))
    }
}

impl FromStr for ActivityKinds {
    type Err = String;

    /// Parses a non-empty, comma-separated list of names.
    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').try_fold(Self::NONE, Self::with)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn settings_round_trip() {
        let settings = WireSettings {
            kinds: "kernel,memcpy,marker".parse().unwrap(),
            buffer_bytes: 1 << 20,
            flush_ms: 7,
            tracer: Some(TracerId {
                pid: 4242,
                start_ticks: u64::MAX,
                namespace: 4_026_531_836,
            }),
        };
        assert_eq!(settings.to_string().parse(), Ok(settings));
        let settings = WireSettings::default();
        assert_eq!(settings.to_string().parse(), Ok(settings));
    }

    #[test]
    fn graph_traces_are_off_by_default() {
        assert!(!ActivityKinds::USUAL.contains("graph"));
        assert!(ActivityKinds::ALL.contains("graph"));
        assert_eq!(
            ActivityKinds::ALL.iter().count(),
            ActivityKinds::USUAL.iter().count() + 1
        );
        assert_eq!(
            ActivityKinds::ALL.to_string().parse(),
            Ok(ActivityKinds::ALL)
        );
    }

    #[test]
    fn unknown_settings_are_refused() {
        for (text, why) in [
            ("", "no such setting"),
            ("kinds", "no such setting"),
            ("kinds=", "expected one of device, context"),
            ("kinds=kernel,", "expected one of"),
            ("kinds=Kernel", "\"Kernel\": expected one of"),
            ("buffer=1", "buffer=1"),
            ("buffer=8MiB", "buffer=8MiB"),
            ("flush_ms=0", "flush_ms=0"),
            ("tracer=1:2", "tracer=1:2"),
            ("tracer=1:2:3:4", "tracer=1:2:3:4"),
            ("tracer=1:2:x", "tracer=1:2:x"),
            ("color=red", "color=red"),
            ("flush_ms=5;;", "no such setting"),
        ] {
            let refused = text.parse::<WireSettings>().unwrap_err();
            assert!(refused.contains(why), "{text:?}: {refused}");
        }
    }
}
