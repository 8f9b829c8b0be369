//! End-to-end tests: gpuprobe as a real process against the stand-in CUDA, through the real
//! kernel. Every number is compared with what the traced program says that it did.
//!
//! Those whose names begin with `root_` need root and a kernel where BPF can be used; where that is missing
//! each of them fails at once and says so. Every other test passes as any user.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod activity;
mod attach;
mod attacks;
mod bandwidth;
mod calls;
mod capabilities;
mod children;
mod chroots;
mod collector;
mod command;
mod containers;
mod copies;
mod cudatrace;
mod devices;
mod doctor;
mod exactness;
mod explain;
mod faults;
mod filters;
mod formats;
mod gate;
mod glance;
mod harness;
mod hostile;
mod incidents;
mod kernels;
mod latency;
mod libraries;
mod losses;
mod memory;
mod nothing;
mod output;
mod owners;
mod processes;
mod python;
#[path = "../pythons/mod.rs"]
mod pythons;
mod reconciliation;
mod recording;
mod shares;
mod stacks;
mod stopped;
mod stress;
mod tensors;
mod together;
#[path = "../schema/validator.rs"]
mod validator;
mod versions;
mod visible_devices;
