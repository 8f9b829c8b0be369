//! What the function table says to the BPF programs: `bpf/abi.h`, by `scripts/abi.py`.

#![allow(missing_docs, clippy::doc_markdown)]

include!("abi/generated.rs");
