//! Symbolisation on a thread: a symbol table of half a gigabyte takes a while, and the thread that reads the rings
//! must not block.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::source::{self, ProcessFiles};
use super::{ResolvedFrames, SymbolRequest, Symbolizer};
use crate::Module;
use crate::helper::{FileReader, ProcessReader, Wanted};
use gpuprobe_model::stack::{Frame, ModuleId};
use gpuprobe_os::privileges::{self, AS_OTHERS, LOOK};

/// A message to the thread.
#[derive(Debug)]
enum ServiceMessage {
    Find(SymbolRequest, Option<Arc<Module>>),
    Line(SymbolRequest, Frame, Option<Arc<ProcessFiles>>),
    PerfMap(u32, Option<File>),
    Forget(u32),
    Close(ModuleId),
}

/// A thread that symbolises locations, and reads Python source lines. It ends after its current request when this is
/// dropped.
#[derive(Debug)]
pub struct Service {
    requests: Sender<ServiceMessage>,
    answers: Receiver<ResolvedFrames>,
    outstanding: usize,
}

impl Service {
    /// Starts the thread, which asks the helpers of these. It keeps the capabilities needed to start another reader.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(reader: &FileReader, processes: &ProcessReader) -> std::io::Result<Self> {
        let (requests, received) = channel();
        let (sender, answers) = channel();
        let (reader, opener) = (reader.slow(), processes.clone());
        thread::Builder::new()
            .name("symbols".into())
            .spawn(move || {
                privileges::keep_only_here(&[LOOK, AS_OTHERS]);
                let mut symbolizer = Symbolizer::new(reader, opener.clone());
                serve(&mut symbolizer, &opener, &received, &sender);
            })?;
        Ok(Self {
            requests,
            answers,
            outstanding: 0,
        })
    }

    /// Sends what is answered.
    fn ask(&mut self, message: ServiceMessage) {
        self.outstanding += usize::from(self.requests.send(message).is_ok());
    }

    /// Sends what is not. This fails only if the thread has ended.
    fn tell(&self, message: ServiceMessage) {
        let _ = self.requests.send(message);
    }

    /// Requests the frames at locations, each with its module if it has one, without blocking.
    pub fn request(
        &mut self,
        requests: impl IntoIterator<Item = (SymbolRequest, Option<Arc<Module>>)>,
    ) {
        for (request, module) in requests {
            self.ask(ServiceMessage::Find(request, module));
        }
    }

    /// Requests the source text of the line of `frame` from `files`, if it is the user's own code, without
    /// blocking.
    pub fn request_line(
        &mut self,
        request: SymbolRequest,
        frame: Frame,
        files: Option<Arc<ProcessFiles>>,
    ) {
        self.ask(ServiceMessage::Line(request, frame, files));
    }

    /// Requests to open the perf map of process `pid`.
    pub fn keep_perf_map(&mut self, pid: u32) {
        self.tell(ServiceMessage::PerfMap(pid, None));
    }

    /// Drops the perf map of a process that has ended or called exec: its id may be reused.
    pub fn forget(&mut self, pid: u32) {
        self.tell(ServiceMessage::Forget(pid));
    }

    /// Has the files of modules closed after what was asked for so far: nobody has them mapped.
    pub fn close(&mut self, modules: impl IntoIterator<Item = ModuleId>) {
        for module in modules {
            self.tell(ServiceMessage::Close(module));
        }
    }

    /// The answers received so far.
    pub fn poll(&mut self) -> Vec<ResolvedFrames> {
        self.wait(Duration::ZERO)
    }

    /// Waits up to `timeout` for all answers; returns those received.
    pub fn wait(&mut self, timeout: Duration) -> Vec<ResolvedFrames> {
        let end = Instant::now() + timeout;
        let mut answers = Vec::new();
        while self.outstanding > 0 {
            let left = end.saturating_duration_since(Instant::now());
            match self.answers.recv_timeout(left) {
                Ok(answer) => {
                    self.outstanding -= 1;
                    answers.push(answer);
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => self.outstanding = 0,
            }
        }
        answers
    }

    /// Number of requests without an answer.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }
}

fn serve(
    symbolizer: &mut Symbolizer,
    opener: &ProcessReader,
    messages: &Receiver<ServiceMessage>,
    answers: &Sender<ResolvedFrames>,
) {
    let arrived = |message| match message {
        // Before anything else is named: the process may end.
        ServiceMessage::PerfMap(pid, _) => {
            ServiceMessage::PerfMap(pid, opener.open(&Wanted::PerfMap(pid), None))
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
            ServiceMessage::Find(request, module) => symbolizer.answer(request, module.as_ref()),
            ServiceMessage::Line(request, frame, files) => ResolvedFrames {
                request,
                frames: vec![source::read(opener, frame, files.as_deref())],
            },
            ServiceMessage::PerfMap(pid, file) => {
                symbolizer.keep_perf_map(pid, file);
                continue;
            }
            ServiceMessage::Forget(pid) => {
                symbolizer.forget(pid);
                continue;
            }
            ServiceMessage::Close(module) => {
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
mod tests {
    use super::*;
    use gpuprobe_model::stack::{Location, bare_frame};

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

    /// The symbol of [`LOCATION`].
    fn name(service: &mut Service) -> String {
        service.request([(request(), None)]);
        let answers = service.wait(Duration::from_secs(60));
        let frames = answers.into_iter().flat_map(|answer| answer.frames);
        frames.map(|frame| frame.function).collect()
    }

    #[test]
    fn perf_maps_of_reused_ids_are_dropped() -> std::io::Result<()> {
        let pid = std::process::id();
        let map = format!("/tmp/perf-{pid}.map");
        let mut service = Service::start(&FileReader::default(), &ProcessReader::default())?;
        std::fs::write(&map, "1000 10 of_the_first\n")?;
        assert_eq!(name(&mut service), "of_the_first");
        std::fs::write(&map, "1000 10 of_its_successor\n")?;
        assert_eq!(name(&mut service), "of_the_first");
        service.forget(pid);
        assert_eq!(name(&mut service), "of_its_successor");
        std::fs::remove_file(map)
    }

    #[test]
    fn answers_are_outstanding_until_they_are_taken() -> std::io::Result<()> {
        let mut service = Service::start(&FileReader::default(), &ProcessReader::default())?;
        let request = request();
        let frame = bare_frame(&LOCATION);
        for _ in 0..2 {
            service.request_line(request, frame.clone(), None);
        }
        service.request([(request, None)]);
        assert_eq!(service.outstanding(), 3);
        assert_eq!(service.wait(Duration::from_secs(60)).len(), 3);
        assert_eq!(service.outstanding(), 0);
        assert!(service.wait(Duration::from_secs(60)).is_empty());
        service.request_line(request, frame, None);
        let mut polled = service.poll();
        while polled.is_empty() {
            thread::yield_now();
            polled = service.poll();
        }
        assert_eq!((polled.len(), service.outstanding()), (1, 0));
        Ok(())
    }
}
