//! Records and settings exchanged between the BPF programs and user space, byte for byte:
//! `bpf/abi_records.h` and `bpf/abi_stacks.h`, by `scripts/abi.py`.

#![allow(missing_docs, clippy::doc_markdown)]

use serde::{Deserialize, Serialize};
use std::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use gpuprobe_cuda::EXTRA;
use gpuprobe_wire as wire;

include!("abi/generated.rs");

// What the kernel side knows of batches.
const _: () = assert!(MAX_BATCH_BYTES == wire::BATCH_MAX);
const _: () = assert!(BATCH_RECORDS_AT == offset_of!(wire::BatchHeader, records));
