//! End-to-end tests: the gpuprobe binary against the stand-in CUDA, through the real kernel. Every
//! figure is compared with the traced program's own.
//!
//! Tests whose names begin with `root_` need root and a kernel with BPF; without these each fails
//! at once with a message. The others pass as any user.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod activity;
mod attach;
mod bandwidth;
mod book;
#[path = "../book/mod.rs"]
mod book_commands;
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
mod entries;
mod exactness;
mod explain;
mod filters;
mod gate;
mod harness;
mod incidents;
mod kernels;
mod libraries;
mod long;
mod losses;
mod memory;
mod no_target;
mod output;
mod probed;
mod processes;
mod python;
#[path = "../pythons/mod.rs"]
mod pythons;
mod reconciliation;
mod recording;
mod serve;
mod stacks;
mod stopped;
mod summary;
mod tensors;
#[path = "../schema/validator.rs"]
mod validator;
mod versions;
mod visible_devices;
