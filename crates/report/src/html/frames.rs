//! Frames that many stacks share.

use std::collections::HashMap;

use super::document::FrameData;
use gpuprobe_model::stack::{Frame, Language};

/// Numbers frames in the order in which they are first seen.
#[derive(Debug, Default)]
pub(super) struct FrameTable {
    numbers: HashMap<FrameData, u32>,
    list: Vec<FrameData>,
}

impl FrameTable {
    /// Numbers of the frames of a stack.
    pub(super) fn stack(&mut self, frames: Vec<Frame>) -> Vec<u32> {
        frames.into_iter().map(|frame| self.number(frame)).collect()
    }

    fn number(&mut self, frame: Frame) -> u32 {
        let document = FrameData(
            frame.function,
            frame.file,
            frame.line,
            frame.module,
            u8::from(frame.language == Language::Python),
            u8::from(frame.inlined),
        );
        if let Some(&number) = self.numbers.get(&document) {
            return number;
        }
        let number = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        self.numbers.insert(document.clone(), number);
        self.list.push(document);
        number
    }

    /// All frames, by number.
    pub(super) fn into_list(self) -> Vec<FrameData> {
        self.list
    }
}
