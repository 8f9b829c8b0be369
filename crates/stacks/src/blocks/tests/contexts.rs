//! PyTorch's own history of its blocks.

use std::collections::BTreeMap;

use super::super::{contexts, torch};
use super::{AS_OF_2_11, Fields, Heap, Random, Scene, scene};
use crate::python::interpreter::tests::interpreter;
use gpuprobe_model::abi::RawPython;
use gpuprobe_model::blocks::DeviceBlocks;

/// Function, file and line.
type Line = (String, String, u32);

/// A program with a history: its memory, where there is something of that, and the frames of each block.
struct History {
    scene: Scene,
    python: RawPython,
    places: Vec<u64>,
    expected: BTreeMap<u64, Vec<Line>>,
}

impl Heap {
    fn set_bytes(&mut self, object: u64, at: u16, bytes: &[u8]) {
        for (at, byte) in (u64::from(at)..).zip(bytes) {
            let word = object + at / 8 * 8;
            let value = self.objects[&object][usize::try_from(at / 8).unwrap()];
            let shift = at % 8 * 8;
            self.set(
                word,
                &[value & !(0xff << shift) | u64::from(*byte) << shift],
            );
        }
    }

    /// An object that begins with its number of elements, and has these bytes at `data`.
    fn text(&mut self, python: &RawPython, data: u16, bytes: &[u8]) -> u64 {
        let object = self.new_object(bytes.len().div_ceil(8) + 10);
        self.set(object + u64::from(python.bytes_size), &[bytes.len() as u64]);
        self.set_bytes(object, data, bytes);
        object
    }

    /// A code object of two instructions: one of line 100, one of 101.
    fn code(&mut self, python: &RawPython, name: &str) -> u64 {
        let texts = [name, "/srv/a.py"].map(|text| {
            let object = self.text(python, python.text_ascii, text.as_bytes());
            // ASCII, a byte each.
            let state = (16 | 1) << python.text_kind_shift;
            self.set(object + u64::from(python.text_state), &[state]);
            object
        });
        let table = self.text(python, python.bytes_data, &[0x80, 0, 0xd8, 0, 1]);
        let code = self.new_object(40);
        self.set(code + 8, &[python.code_type, 2]);
        self.set_bytes(code, python.first_line, &[100, 0, 0, 0]);
        for (member, value) in [
            (python.name, texts[0]),
            (python.file, texts[1]),
            (python.line_table, table),
        ] {
            self.set(code + u64::from(member), &[value]);
        }
        code
    }
}

/// Blocks have a context at word `at`, and at the second one behind it that of their segment: those whose numbers, in the
/// order of addresses, `has` and `of_segment` accept; free ones only the latter.
fn history(
    fields: Fields,
    [at, vector]: [usize; 2],
    has: impl Fn(usize) -> bool,
    of_segment: impl Fn(usize) -> bool,
) -> History {
    let mut scene = scene(fields);
    let heap = &mut scene.heap;
    let python = interpreter(12, 0..1).layout(0x5000_0000).unwrap();
    let codes = ["main", "step", "forward"].map(|name| (heap.code(&python, name), name));
    let native = heap.new_object(4);
    heap.set(native, &[0x7f11, 0x7f22, 0x7f33, 0x7f44]);
    let (mut places, mut expected) = (Vec::new(), BTreeMap::new());
    let mut context = |heap: &mut Heap, number: usize| {
        let frames = (0..number % 4).map(|frame| ((number + frame) % 3, frame % 2));
        let frames: Vec<_> = frames.collect();
        let list = heap.new_object(frames.len() * 2);
        for (index, (code, at)) in frames.iter().enumerate() {
            let at = (*at as u64 * 2) | (0xabcd << 32);
            heap.set(list + index as u64 * 16, &[codes[*code].0, at]);
        }
        let object = heap.new_object(24);
        let end = list + frames.len() as u64 * 16;
        heap.set(object, &[0x4000]);
        if !frames.is_empty() {
            heap.set(object + vector as u64 * 8, &[list, end, end]);
            places.extend((list..end).step_by(16));
        }
        places.extend((0..3).map(|word| object + (vector as u64 + word) * 8));
        let other = if vector > 4 { 1 } else { vector + 3 };
        heap.set(
            object + other as u64 * 8,
            &[native, native + 32, native + 32],
        );
        let line = |&(code, at): &(usize, usize)| {
            (
                codes[code].1.to_owned(),
                "/srv/a.py".to_owned(),
                100 + at as u32,
            )
        };
        (object, frames.iter().map(line).collect::<Vec<Line>>())
    };
    let blocks = scene.expected.iter().flat_map(|device| &device.blocks);
    let in_use: Vec<u64> = blocks.map(|block| block.place).collect();
    for (number, &block) in in_use.iter().chain(&scene.free).enumerate() {
        if number < in_use.len() && has(number) {
            let (object, lines) = context(heap, number + 1);
            heap.set(block + at as u64 * 8, &[object, object - 16]);
            expected.insert(block, lines);
        }
        if of_segment(number) {
            let (object, _) = context(heap, number + 2);
            heap.set(block + (at + 2) as u64 * 8, &[object, object - 16]);
        }
    }
    History {
        scene,
        python,
        places,
        expected,
    }
}

impl History {
    /// The frames of each block that has some, by its place.
    fn find(&self, heap: &Heap) -> Option<BTreeMap<u64, Vec<Line>>> {
        let mut devices = torch::read(heap, self.scene.root).ok()?;
        contexts::find(heap, &self.python, &mut devices);
        let lines = |device: &DeviceBlocks, number: u64| {
            let frames = device.stacks[&number].iter().cloned();
            let lines = frames.map(|it| (it.function, it.file.unwrap(), it.line.unwrap()));
            lines.collect()
        };
        let blocks = devices
            .iter()
            .flat_map(|device| device.blocks.iter().map(move |it| (device, it)));
        let found = blocks.filter(|(_, block)| block.stack != 0);
        Some(
            found
                .map(|(device, block)| (block.place, lines(device, block.stack)))
                .collect(),
        )
    }
}

/// Blocks of different segments, and free ones.
fn one_of_each(number: usize) -> bool {
    matches!(number, 1 | 4 | 5 | 6 | 8 | 10..)
}

#[test]
fn contexts_are_found_wherever_they_are() {
    let mut random = Random(11);
    for _ in 0..30 {
        let at = 18 + random.below(9);
        let vector = 1 + random.below(20);
        let history = history(AS_OF_2_11, [at, vector], |n| n % 5 != 0, one_of_each);
        let mut expected = history.expected.clone();
        expected.retain(|_, lines| !lines.is_empty());
        assert!(expected.len() > 3);
        assert_eq!(
            history.find(&history.scene.heap),
            Some(expected),
            "{at} {vector}"
        );
    }
}

#[test]
fn contexts_of_segments_are_not_those_of_blocks() {
    let find = |has: fn(usize) -> bool, of_segment: fn(usize) -> bool| {
        let history = history(AS_OF_2_11, [20, 1], has, of_segment);
        history.find(&history.scene.heap).map(|found| found.len())
    };
    // Two of the first segment.
    assert_eq!(find(|n| n < 2, |_| false), Some(2));
    // One is the segment's, for all that is known.
    assert_eq!(find(|n| n == 1, |_| false), Some(0));
    assert_eq!(find(|_| false, |n| n == 1), Some(0));
    // Free blocks have those of segments.
    assert_eq!(find(|n| n == 1, |n| n > 8), Some(1));
    assert_eq!(find(|_| false, |n| n > 6), Some(0));
    assert_eq!(find(|_| false, |_| false), Some(0));
}

#[test]
fn whatever_contexts_have_no_frame_is_wrong() {
    let history = history(AS_OF_2_11, [20, 1], |_| true, one_of_each);
    let blocks = history
        .expected
        .keys()
        .flat_map(|block| [block + 128, block + 136]);
    let values = [0, 1, u64::MAX, u64::MAX - 7, history.scene.root];
    let mut right = 0;
    for at in history.places.iter().copied().chain(blocks) {
        for value in values {
            let mut heap = history.scene.heap.clone();
            heap.set(at, &[value]);
            for (block, lines) in history.find(&heap).unwrap_or_default() {
                assert_eq!(lines, history.expected[&block], "{value:#x} at {at:#x}");
                right += 1;
            }
        }
    }
    assert!(right > 0);
}
