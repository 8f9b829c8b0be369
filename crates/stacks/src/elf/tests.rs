pub(crate) mod sample;

use super::*;
use sample::{DATA, ElfSample, FUNCTION};

/// A header.
fn header(class: u8, machine: u16) -> Vec<u8> {
    let mut bytes = vec![0x7f, b'E', b'L', b'F', class, 1, 1];
    bytes.resize(16, 0);
    bytes.extend([3, 0]);
    bytes.extend(machine.to_le_bytes());
    bytes.resize(64, 0);
    bytes
}

#[test]
fn programs_for_other_machines_are_rejected() {
    let refused = |bytes: &[u8]| Headers::parse(bytes).unwrap_err();
    assert_eq!(refused(&header(1, 3)), Refusal::Is32Bit);
    // x32: 64-bit instructions with 32-bit addresses.
    assert_eq!(refused(&header(1, 62)), Refusal::Is32Bit);
    assert_eq!(refused(&header(2, 183)), Refusal::OtherMachine(183));
    assert!(matches!(refused(&header(2, 62)), Refusal::Damaged(_)));
    assert!(matches!(refused(b"#!/bin/sh"), Refusal::Damaged(_)));
    assert!(matches!(refused(b""), Refusal::Damaged(_)));
    assert!(Refusal::Is32Bit.to_string().contains("32 bits"));
}

#[test]
fn headers_have_segments_sections_and_the_build_id() {
    let bytes = ElfSample::default()
        .segment(
            elf::PT_NOTE.0,
            0,
            0,
            b"\x04\0\0\0\x01\0\0\0\x01\0\0\0GNU\0a\0\0\0\x04\0\0\0\x01\0\0\0\x03\0\0\0ABC\0a\0\0\0",
        )
        .build_id(b"twenty bytes of hash")
        .code(0x1000, &[0xc3; 64])
        .data(0x2000, &[1; 32])
        .segment(elf::PT_GNU_EH_FRAME.0, 4, 0x3000, &[7; 16])
        .section(".text", 0x1000, &[1, 2, 3])
        .symbols(true, &[("a", 0x1000, 8, FUNCTION)])
        .symbols(false, &[("a", 0x1000, 8, FUNCTION), ("b", 0x2000, 8, DATA)])
        .bytes();
    let headers = Headers::parse(&bytes).unwrap();
    assert_eq!(
        headers.build_id.as_deref(),
        Some(&b"twenty bytes of hash"[..])
    );
    let places: Vec<_> = headers
        .segments
        .0
        .iter()
        .map(|s| (s.address, s.file_size))
        .collect();
    assert_eq!(places, [(0x1000, 64), (0x2000, 32)]);
    let code: Vec<_> = headers.segments.code().map(|s| s.address).collect();
    assert_eq!(code, [0x1000]);
    assert_eq!(headers.eh_frame_hdr.as_ref().unwrap().address, 0x3000);
    let text = headers.section(".text").unwrap();
    assert_eq!(
        (text.address, text.size, text.kind),
        (0x1000, 3, elf::SHT_PROGBITS.0)
    );
    assert!(headers.section(".data").is_none());
    assert_eq!(headers.symbol_bytes(), 24 * (2 + 3));
    let many = (0..70).fold(ElfSample::default(), |sample, n| sample.data(n << 12, &[0]));
    let headers = Headers::parse(&many.bytes()).unwrap();
    assert_eq!(headers.segments.0.len(), MAX_SEGMENTS);
    let image = ElfImage::parse(&bytes).unwrap();
    assert_eq!(image.bytes(0x2010, 100), Some(&[1; 16][..]));
    assert_eq!(image.bytes(0x2010, 3), Some(&[1; 3][..]));
    assert_eq!(image.bytes(0x2020, 3), None);
}

fn segment(is_executable: bool, offset: u64, address: u64, file_size: u64) -> LoadSegment {
    LoadSegment {
        is_executable,
        offset,
        address,
        file_size,
    }
}

#[test]
fn addresses_and_offsets_are_of_the_same_segment() {
    // The last page of the first is the first of the second.
    let segments = Segments(vec![
        segment(false, 0, 0x1000, 0x180),
        segment(true, 0x100, 0x5100, 0x100),
        segment(false, 0x300, 0x7000, 0),
    ]);
    for (offset, address) in [
        (0, Some(0x1000)),
        (0xff, Some(0x10ff)),
        (0x100, Some(0x5100)),
        (0x1ff, Some(0x51ff)),
        (0x200, None),
        (0x300, None),
    ] {
        assert_eq!(segments.address_of(offset), address, "{offset:#x}");
    }
    for (address, place) in [
        (0xfff, None),
        (0x1000, Some((0, 0x180))),
        (0x117f, Some((0x17f, 1))),
        (0x1180, None),
        (0x5180, Some((0x180, 0x80))),
        (0x7000, None),
    ] {
        assert_eq!(segments.offset_of(address), place, "{address:#x}");
    }
}

#[test]
fn damaged_headers_are_refused() {
    let good = ElfSample::default()
        .code(1, &[0])
        .section("a", 0, &[1])
        .bytes();
    let change = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        Headers::parse(&bytes).map(|headers| headers.sections.len())
    };
    assert_eq!(change(0, 0x7f), Ok(3));
    // The beginning, class and byte order.
    for (at, byte) in [(3, 0), (4, 3), (5, 2)] {
        assert!(matches!(change(at, byte), Err(Refusal::Damaged(_))), "{at}");
    }
    assert!(change(56, 0).is_err(), "without program headers");
    // Without sections, and without their names.
    assert_eq!([change(60, 0), change(62, 9)], [Ok(0), Ok(0)]);
    let other = Refusal::OtherMachine(183).to_string();
    assert_eq!(other, "it is for another machine (e_machine 183)");
}

#[test]
fn code_is_mapped_from_the_page_on_that_its_segment_begins_in() {
    // As lld links: each segment's addresses are a page further from its offsets.
    let segments = Segments(vec![
        segment(false, 0, 0, 0x1a_d094),
        segment(true, 0x1a_d0a0, 0x1a_e0a0, 0x3a_7600),
        segment(false, 0x55_46a0, 0x55_66a0, 0x100),
    ]);
    for (offset, address) in [
        (0x1a_d000, Some(0x1a_e000)),
        (0x1a_e000, Some(0x1a_f000)),
        (0x55_4000, Some(0x55_5000)),
        (0x55_5000, None),
    ] {
        assert_eq!(segments.address_of_code(offset), address, "{offset:#x}");
    }
}
