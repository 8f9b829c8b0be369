//! End-to-end tests: gpuprobe as a real process against the stand-in CUDA, through the real
//! kernel. Every number is compared with what the traced program says that it did.
//!
//! All of them need root and a kernel where BPF can be used; where that is missing they fail and
//! say so.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod activity;
mod attach;
mod bandwidth;
mod calls;
mod children;
mod chroots;
mod command;
mod containers;
mod copies;
mod cudatrace;
mod descendants;
mod devices;
mod doctor;
mod exactness;
mod faults;
mod filters;
mod formats;
mod harness;
mod hostile;
mod inherited;
mod kernels;
mod latency;
mod libraries;
mod losses;
mod memory;
mod namespaces;
mod output;
mod planted;
mod privileges;
mod processes;
mod reconciliation;
mod recording;
mod rights;
mod stacks;
mod stopped;
mod stress;
mod stress_programs;
mod together;
mod versions;
mod visible_devices;
