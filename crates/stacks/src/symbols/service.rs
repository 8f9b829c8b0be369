//! Symbolisation on a thread: a symbol table of half a gigabyte takes a while, and others must not wait for it.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::source::{self, ProcessFiles};
use super::{ResolvedFrames, SymbolRequest, Symbolizer};
use crate::Module;
use crate::helper::{FileReader, ProcessReader, Wanted};
use gpuprobe_model::stack::{Frame, ModuleId};
use gpuprobe_os::privileges::{self, AS_OTHERS, LOOK};

/// A message to the thread.
#[derive(Debug)]
pub enum SymbolMessage {
    /// Find the frames at a location in a module, if it is in one.
    Find(SymbolRequest, Option<Arc<Module>>),
    /// Add to a frame the source text of its line from these files, if it is the user's own code.
    Line(SymbolRequest, Frame, Option<Arc<ProcessFiles>>),
    /// Keep the perf map of a process, which is opened when this arrives.
    PerfMap(u32, Option<File>),
    /// Drop the perf map of a process that has ended or called exec: its id may be reused.
    Forget(u32),
    /// Close the file of a module, which nobody has mapped.
    Close(ModuleId),
}

/// A thread that symbolises locations, and reads Python source lines. It ends after its current request when this is
/// dropped.
#[derive(Debug)]
pub struct Service(Sender<SymbolMessage>);

impl Service {
    /// Starts the thread, which asks the helpers of these, and sends what is asked for to `answers`. It keeps the
    /// capabilities needed to start another reader.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(
        reader: &FileReader,
        processes: &ProcessReader,
        answers: Sender<ResolvedFrames>,
    ) -> std::io::Result<Self> {
        let (requests, received) = channel();
        let (reader, opener) = (reader.slow(), processes.clone());
        thread::Builder::new()
            .name("symbols".into())
            .spawn(move || {
                privileges::keep_only_here(&[LOOK, AS_OTHERS]);
                let mut symbolizer = Symbolizer::new(reader, opener.clone());
                serve(&mut symbolizer, &opener, &received, &answers);
            })?;
        Ok(Self(requests))
    }

    /// Has the thread do something, after what it was sent before.
    pub fn send(&self, message: SymbolMessage) {
        // Fails only if the thread has ended.
        let _ = self.0.send(message);
    }
}

fn serve(
    symbolizer: &mut Symbolizer,
    opener: &ProcessReader,
    messages: &Receiver<SymbolMessage>,
    answers: &Sender<ResolvedFrames>,
) {
    let arrived = |message| match message {
        // Before anything else is named: the process may end.
        SymbolMessage::PerfMap(pid, _) => {
            SymbolMessage::PerfMap(pid, opener.open(&Wanted::PerfMap(pid), None))
        }
        other => other,
    };
    let mut queue = VecDeque::new();
    loop {
        queue.extend(messages.try_iter().map(arrived));
        let next = queue.pop_front();
        let Some(message) = next.or_else(|| messages.recv().ok().map(arrived)) else {
            return;
        };
        let answer = match message {
            SymbolMessage::Find(request, module) => symbolizer.answer(request, module.as_ref()),
            SymbolMessage::Line(request, frame, files) => ResolvedFrames {
                request,
                frames: vec![source::read(opener, frame, files.as_deref())],
            },
            SymbolMessage::PerfMap(pid, file) => {
                symbolizer.keep_perf_map(pid, file);
                continue;
            }
            SymbolMessage::Forget(pid) => {
                symbolizer.forget(pid);
                continue;
            }
            SymbolMessage::Close(module) => {
                symbolizer.close(module);
                continue;
            }
        };
        if answers.send(answer).is_err() {
            return;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use gpuprobe_model::stack::Location;

    /// Address 0x1000, which is in no file.
    const LOCATION: Location = Location {
        address: 0x1000,
        module: None,
        offset: 0,
    };

    fn request() -> SymbolRequest {
        SymbolRequest {
            pid: std::process::id(),
            location: LOCATION,
            is_innermost: true,
        }
    }

    #[test]
    fn perf_maps_of_reused_ids_are_dropped() -> std::io::Result<()> {
        let pid = std::process::id();
        let map = format!("/tmp/perf-{pid}.map");
        let (sender, answers) = channel();
        let service = Service::start(&FileReader::default(), &ProcessReader::default(), sender)?;
        let name = || {
            service.send(SymbolMessage::Find(request(), None));
            let answer = answers.recv().unwrap();
            answer.frames[0].function.clone()
        };
        std::fs::write(&map, "1000 10 of_the_first\n")?;
        assert_eq!(name(), "of_the_first");
        std::fs::write(&map, "1000 10 of_its_successor\n")?;
        assert_eq!(name(), "of_the_first");
        service.send(SymbolMessage::Forget(pid));
        assert_eq!(name(), "of_its_successor");
        std::fs::remove_file(map)
    }
}
