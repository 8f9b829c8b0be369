//! Records as the BPF side of 0.2.0 sent them, which the logs of its recordings contain.

use std::mem::offset_of;

use super::Item;
use gpuprobe_model::abi::{
    RawCall, RawCopy, RawDetail, RawKernel, RawLaunch, RawLaunchKey, RawNamed, RawTask, RawTensor,
    record,
};
use gpuprobe_model::event;

/// What the metadata of these recordings say of the layouts.
pub(super) const LAYOUT: &str =
    "call 64 detail 152 task 64 kernel 56 copy 64 launch 88 batch gpuact01";

// A record of the BPF side that changes needs a copy of its old layout here, unless it only became longer:
// the fields at its end are 0 in these recordings.
const COPY: usize = offset_of!(RawCopy, stack);
const _: () = assert!(offset_of!(RawDetail, call) == 0 && offset_of!(RawNamed, detail) == 0);
const _: () = assert!(size_of::<RawCall>() == 64 && size_of::<RawNamed>() == 152);
const _: () = assert!(size_of::<RawTask>() == 64 && size_of::<RawKernel>() == 56);
const _: () = assert!(COPY == 64 && size_of::<RawLaunch>() == 88);

/// Offset of the function's row in a record; `None` for records without one.
fn row_offset(bytes: &[u8]) -> Option<usize> {
    let record_type = u16::from_ne_bytes(*bytes.first_chunk::<2>()?);
    let offset = match record_type {
        // The others begin with a call.
        record::CALL | record::DETAIL | record::NAMED => offset_of!(RawCall, row),
        record::COPY => offset_of!(RawCopy, row),
        record::TENSOR => offset_of!(RawTensor, row),
        record::KERNEL => offset_of!(RawKernel, key) + offset_of!(RawLaunchKey, row),
        record::LAUNCH => offset_of!(RawLaunch, key) + offset_of!(RawLaunchKey, row),
        _ => return None,
    };
    (offset + 2 <= bytes.len()).then_some(offset)
}

/// The item of a record; `None` if it cannot be decoded.
pub fn item_of_record(bytes: &[u8]) -> Option<Item<'_>> {
    if let Some((raw, batch)) = event::batch(bytes) {
        return Some(Item::Batch(raw, batch));
    }
    event::decode(bytes).map(Item::Event)
}

/// The same with the row that `rows` gives for that of its function; `None` if it gives none.
pub(super) fn item_of(bytes: &[u8], rows: impl Fn(u16) -> Option<u16>) -> Option<Item<'_>> {
    let Some(offset) = row_offset(bytes) else {
        return item_of_record(bytes);
    };
    let recorded = u16::from_ne_bytes([bytes[offset], bytes[offset + 1]]);
    let current = rows(recorded)?;
    let is_short = bytes.len() == COPY && bytes[..2] == record::COPY.to_ne_bytes();
    if current == recorded && !is_short {
        return item_of_record(bytes);
    }
    let mut record = bytes.to_vec();
    if is_short {
        record.resize(size_of::<RawCopy>(), 0);
    }
    record[offset..offset + 2].copy_from_slice(&current.to_ne_bytes());
    // Batches, which borrow, have no row.
    match item_of_record(&record)? {
        Item::Event(event) => Some(Item::Event(event)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_where_the_kind_of_record_has_it() {
        for (kind, offset) in [
            (record::CALL, Some(2)),
            (record::DETAIL, Some(2)),
            (record::NAMED, Some(2)),
            (record::COPY, Some(2)),
            (record::TENSOR, Some(2)),
            (record::KERNEL, Some(20)),
            (record::LAUNCH, Some(28)),
            (record::PROCESS, None),
            (record::BATCH, None),
        ] {
            let mut bytes = [0; 200];
            bytes[..2].copy_from_slice(&kind.to_ne_bytes());
            assert_eq!(row_offset(&bytes), offset, "{kind}");
            if let Some(offset) = offset {
                assert_eq!(row_offset(&bytes[..offset + 2]), Some(offset));
                assert_eq!(row_offset(&bytes[..offset + 1]), None);
            }
        }
        assert_eq!(row_offset(&[1]), None);
    }
}
