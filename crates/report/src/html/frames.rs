//! Frames that many stacks share.

use std::collections::HashMap;

use super::document::FrameData;
use crate::profile::{ProfileFrame, shown, visible};
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
    pub(super) fn stack(&mut self, frames: Vec<Frame>, called: Option<&str>) -> Vec<u32> {
        let mut frames: Vec<_> = frames.into_iter().map(ProfileFrame::from).collect();
        if let Some(called) = called {
            frames = shown(frames, called, false);
            if frames
                .first()
                .is_some_and(|frame| *frame.function == *called)
            {
                frames.remove(0);
            }
        }
        visible(&frames, false)
            .map(|frame| self.number(frame))
            .collect()
    }

    fn number(&mut self, frame: &ProfileFrame) -> u32 {
        let document = FrameData(
            frame.function.to_string(),
            frame.file.as_deref().map(str::to_owned),
            frame.line,
            frame.module.to_string(),
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
