//! Batches of arbitrary bytes, as a program may have written them, never cause a panic.

#![allow(missing_docs, clippy::unwrap_used)]

use gpuprobe_engine::GpuActivity;
use gpuprobe_model::abi::{RawBatch, record};
use gpuprobe_model::activity::BatchDecoder;
use gpuprobe_model::event::Event;
use gpuprobe_wire::BatchHeader;

proptest::proptest! {
    #[test]
    fn never_panics(
        header in proptest::collection::vec(0u8.., 88),
        body in proptest::collection::vec(0u8.., 0..400),
        is_batch in proptest::bool::ANY,
    ) {
        let mut bytes = [header, body].concat();
        if is_batch {
            bytes[..8].copy_from_slice(b"gpuact01");
            let length = u32::try_from(bytes.len() - size_of::<BatchHeader>()).unwrap();
            bytes[76..80].copy_from_slice(&length.to_le_bytes());
        }
        let mut decoder = BatchDecoder::default();
        for lost in [0, u64::MAX] {
            let batch = decoder.decode(&raw(&bytes, lost), &bytes);
            let mut activities = GpuActivity::default();
            activities.apply(&Event::Activity(batch));
            activities.mark_reported();
        }
    }
}

fn raw(bytes: &[u8], lost: u64) -> RawBatch {
    RawBatch {
        record_type: record::BATCH,
        reserved: 0,
        tgid: 4242,
        process: 4242 << 10 | 7,
        bytes: u32::try_from(bytes.len()).unwrap(),
        lost,
    }
}
