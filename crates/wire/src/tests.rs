//! Round trips of batches, and malformed batches.

use zerocopy::IntoBytes;

use super::*;

fn written() -> Vec<u8> {
    let mut writer = BatchWriter::default();
    assert!(writer.push(
        &Text {
            id: 1,
            ..Default::default()
        },
        b"_Z3addPfS_i"
    ));
    let kernel = Kernel {
        name: 1,
        start_ns: 5,
        end_ns: 9,
        ..Default::default()
    };
    assert!(writer.push(&kernel, b""));
    writer.finish(BatchHeader::default()).to_vec()
}

#[test]
fn batches_round_trip() {
    let bytes = written();
    let batch = Batch::parse(&bytes).unwrap();
    assert_eq!(batch.header.records, 2);
    let items: Vec<_> = batch.records().map(Result::unwrap).collect();
    assert_eq!(items[0].text_lossy(), "_Z3addPfS_i");
    assert!(matches!(items[0].record, WireRecord::Text(text) if text.id == 1));
    assert!(matches!(items[1].record, WireRecord::Kernel(kernel) if kernel.end_ns == 9));
    assert_eq!(items.len(), 2);
}

#[test]
fn bytes_that_are_no_batch_are_refused() {
    assert_eq!(Batch::parse(b"short").unwrap_err(), Malformed::Short);
    let mut bytes = written();
    bytes[0] ^= 1;
    assert!(matches!(Batch::parse(&bytes), Err(Malformed::Magic(_))));
}

#[test]
fn truncated_batches_are_refused() {
    let bytes = written();
    let cut = &bytes[..bytes.len() - 8];
    assert_eq!(Batch::parse(cut).unwrap_err(), Malformed::Truncated);
}

#[test]
fn a_wrong_length_stops_parsing_and_a_wrong_kind_does_not() {
    let header = size_of::<BatchHeader>();
    let mut bytes = written();
    bytes[header] = 99;
    let read: Vec<_> = Batch::parse(&bytes).unwrap().records().collect();
    assert_eq!(read[0], Err(Malformed::Kind(99)));
    assert!(matches!(&read[1], Ok(item) if matches!(item.record, WireRecord::Kernel(_))));

    for length in [0u16, 4, 7, 12, 0xfff8] {
        let mut bytes = written();
        bytes[header + 2..header + 4].copy_from_slice(length.as_bytes());
        let read: Vec<_> = Batch::parse(&bytes).unwrap().records().collect();
        assert_eq!(read, [Err(Malformed::Length)], "{length}");
    }

    // Header only, so that the rest is parsed as records of an unknown kind.
    let mut bytes = written();
    bytes[header + 2..header + 4].copy_from_slice(8u16.as_bytes());
    let first = Batch::parse(&bytes).unwrap().records().next();
    assert_eq!(first, Some(Err(Malformed::Body(Text::KIND))));
}

#[test]
fn a_full_batch_refuses_records() {
    let mut writer = BatchWriter::default();
    let mut pushed = 0;
    while writer.push(&Kernel::default(), b"") {
        pushed += 1;
    }
    let record_bytes = size_of::<RecordHeader>() + size_of::<Kernel>();
    assert!(BATCH_MAX - writer.bytes.len() < record_bytes);
    assert_eq!(writer.records(), pushed);
    assert!(pushed > 100);
    assert!(writer.finish(BatchHeader::default()).len() <= BATCH_MAX);
    writer.clear();
    assert!(writer.is_empty());
    assert!(writer.push(&Kernel::default(), b""));
}

#[test]
fn a_long_text_is_cut_at_a_character() {
    let long = "é".repeat(TEXT_MAX);
    assert_eq!(cut(long.as_bytes()).len(), TEXT_MAX);
    let odd = format!("x{long}");
    assert_eq!(cut(odd.as_bytes()).len(), TEXT_MAX - 1);
    assert_eq!(cut(&[0x80; TEXT_MAX + 1]).len(), TEXT_MAX);
    let mut writer = BatchWriter::default();
    assert!(writer.push(&Text::default(), odd.as_bytes()));
}

#[test]
fn memory_is_allocated_once() {
    let mut writer = BatchWriter::default();
    let before = writer.bytes.capacity();
    while writer.push(&Text::default(), &[b'x'; TEXT_MAX]) {}
    assert_eq!(writer.bytes.capacity(), before);
}
