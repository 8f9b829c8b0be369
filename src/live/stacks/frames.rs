//! Frames that are known.

use std::collections::{HashMap, HashSet};
use std::mem::offset_of;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;
use crate::host::process;
use crate::probe::{Attached, Probe};
use gpuprobe_engine::Ledger;
use gpuprobe_model::abi::{RawCall, RawLaunch, RawPython, RawTensor};
use gpuprobe_model::clock;
use gpuprobe_model::event::Task;
use gpuprobe_model::stack::{
    Frame, FramesKey, JIT, KnownFrames, Language, Location, ModuleId, Symbolize, bare_frame,
};
use gpuprobe_os::say;
use gpuprobe_recording::frames::RecordedFrames;
use gpuprobe_recording::log::Note;
use gpuprobe_stacks::python::line_store::PythonLine;
use gpuprobe_stacks::python::process::Running;
use gpuprobe_stacks::reader::{FileReader, ProcessReader, ReaderHost};
use gpuprobe_stacks::store::Taken;
use gpuprobe_stacks::symbols::{ProcessFiles, ResolvedFrames, Service, SymbolRequest};
use super::{StackState};

/// The frame cache, with the paths of all modules.
pub(crate) struct FrameCache<'a>(&'a StackState);

impl Symbolize for FrameCache<'_> {
    pub(super) fn frames(&self, pid: u32, location: &Location, is_innermost: bool) -> Vec<Frame> {
        self.0.frames.frames(pid, location, is_innermost)
    }

    pub(super) fn module(&self, location: &Location) -> Option<String> {
        match self.0.store.spaces.module(location.module?) {
            Some(module) => Some(module.path.to_string_lossy().into_owned()),
            None => self.0.frames.module(location),
        }
    }
}

/// Drops the Python file of a frame of the `-X perf` trampoline: Python frames are walked separately.
pub(super) fn without_language(frame: &mut Frame) {
    if frame.module == JIT {
        frame.language = Language::Native;
        frame.file = None;
    }
}
