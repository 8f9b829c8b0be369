//! Reading a batch out of a process that may hand over anything.
#![no_main]

use gpuprobe_collector::batch::Batch;
use gpuprobe_collector::wire::{BatchHeader, MAGIC};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // Most inputs get no further than a header; this one is always in order.
    let mut whole = vec![0; size_of::<BatchHeader>()];
    whole[..8].copy_from_slice(&MAGIC.to_le_bytes());
    let at = std::mem::offset_of!(BatchHeader, bytes);
    whole[at..at + 4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
    whole.extend(bytes);
    for bytes in [bytes, &whole] {
        if let Ok(batch) = Batch::parse(bytes) {
            for item in batch.records().flatten() {
                let _ = item.text_lossy();
            }
        }
    }
});
