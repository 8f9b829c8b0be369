//! The skeleton that libbpf-cargo generated from `bpf/gpuprobe.bpf.c`.

#![allow(unsafe_code, missing_docs, unreachable_pub, unused_qualifications)]
#![allow(clippy::all, clippy::pedantic, clippy::restriction)]

include!(concat!(env!("OUT_DIR"), "/gpuprobe.skel.rs"));
