//! Python frames, through the real kernel.

mod frames;
mod program;

use serde_json::Value;

use crate::harness::report::list;

/// Limit of Python frames shown for a stack.
pub(crate) const DEPTH: usize = 128;
/// Loss counters: truncated stacks, unreadable stacks and code objects, and full maps.
pub(crate) const LOST_CUT: &str = "python_cut";
pub(crate) const LOST_UNREADABLE: &str = "python_unreadable";
const LOST: &str = "python";
/// Limits: characters of a name, from its beginning, and bytes of a file's path, from its end.
const NAME_BYTES: usize = 512;
const FILE_BYTES: usize = 1024;
/// The marker of a cut text.
const ELLIPSIS: &str = "...";

/// A frame, by gpuprobe or by the interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) function: String,
    pub(crate) file: String,
    pub(crate) line: Option<u64>,
}

/// The Python frames of a stack, innermost first, and its markers.
pub(crate) fn python_frames(stack: &[Value]) -> (Vec<Frame>, Vec<String>) {
    let (mut frames, mut marks) = (Vec::new(), Vec::new());
    for frame in stack.iter().filter(|frame| frame["language"] == "python") {
        let function = frame["function"].as_str().unwrap().to_owned();
        let Some(file) = frame["file"].as_str() else {
            marks.push(function);
            continue;
        };
        frames.push(Frame {
            function,
            file: file.to_owned(),
            line: frame["line"].as_u64(),
        });
    }
    (frames, marks)
}

/// The allocations of a process: thread, allocation.
fn allocations(process: &Value) -> impl Iterator<Item = (u64, &Value)> {
    list(process, "threads").iter().flat_map(|thread| {
        let tid = thread["tid"].as_u64().unwrap();
        list(thread, "allocations").iter().map(move |a| (tid, a))
    })
}
