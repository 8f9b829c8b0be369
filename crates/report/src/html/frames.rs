//! Frames that many stacks share.

use std::collections::HashMap;

use super::document::FrameData;
use crate::profile::{shown, visible};
use gpuprobe_model::stack::{Frame, Language};

/// Numbers frames in the order in which they are first seen.
#[derive(Debug, Default)]
pub(super) struct FrameTable {
    numbers: HashMap<FrameData, u32>,
    list: Vec<FrameData>,
}

impl FrameTable {
    /// Numbers of the frames of a stack that are shown: as in flame graphs, without CUDA's own and the function that was
    /// called, and without the interpreter's between Python lines.
    pub(super) fn stack(&mut self, mut frames: Vec<Frame>, called: Option<&str>) -> Vec<u32> {
        if let Some(called) = called {
            frames = shown(frames, called, false);
            if frames
                .first()
                .is_some_and(|frame| frame.function == called)
            {
                frames.remove(0);
            }
        }
        visible(&frames, false)
            .map(|frame| self.number(frame))
            .collect()
    }

    fn number(&mut self, frame: &Frame) -> u32 {
        let document = FrameData(
            frame.function.clone(),
            frame.file.clone(),
            frame.line,
            frame.module.clone(),
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
