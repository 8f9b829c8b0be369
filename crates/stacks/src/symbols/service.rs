//! Symbolisation on separate threads: a symbol table of half a gigabyte takes a while, and the thread that
//! reads the rings must not block.

use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::source::{self, ProcessFiles, SourceLine};
use super::{ResolvedFrames, SymbolRequest, Symbolizer};
use crate::Module;
use crate::reader::{FileReader, Opener, ReaderHost, ReaderKind, Wanted};
use gpuprobe_model::stack::{Frame, ModuleId};
use gpuprobe_os::privileges;
use gpuprobe_os::privileges::{AS_OTHERS, LOOK};

/// A message to the symbol thread.
#[derive(Debug)]
enum ServiceMessage {
    Find(SymbolRequest, Option<Arc<Module>>),
    Keep(u32, File),
    Forget(u32),
    Close(ModuleId),
}

/// A message to the thread that opens files.
#[derive(Debug)]
enum InFile {
    Line(SourceLine),
    PerfMap(u32),
}

/// A thread that symbolises locations, and one that opens files and reads Python source lines. Each
/// ends after its current request when this is dropped.
#[derive(Debug)]
pub struct Service {
    requests: Sender<ServiceMessage>,
    files: Sender<InFile>,
    answers: Receiver<ResolvedFrames>,
    outstanding: usize,
}

impl Service {
    /// Starts the threads. They keep the capabilities needed to start another opener process.
    ///
    /// # Errors
    /// Returns an error if a thread cannot be started.
    pub fn start(place: ReaderHost) -> std::io::Result<Self> {
        let (requests, received) = channel();
        let (files, wanted) = channel();
        let (sender, answers) = channel();
        let opener = Opener::new(place);
        let of_files = (opener.clone(), requests.clone(), sender.clone());
        thread::Builder::new()
            .name("source lines".into())
            .spawn(move || {
                privileges::keep_only_here(&[LOOK, AS_OTHERS]);
                let (opener, maps, answers) = of_files;
                open_files(&opener, &wanted, &maps, &answers);
            })?;
        thread::Builder::new()
            .name("symbols".into())
            .spawn(move || {
                privileges::keep_only_here(&[LOOK, AS_OTHERS]);
                let mut symbolizer =
                    Symbolizer::new(FileReader::new(ReaderKind::Names, place), opener);
                serve(&mut symbolizer, &received, &sender);
            })?;
        Ok(Self {
            requests,
            files,
            answers,
            outstanding: 0,
        })
    }

    /// Requests the frames at locations, each with its module if it has one, without blocking.
    pub fn request(
        &mut self,
        requests: impl IntoIterator<Item = (SymbolRequest, Option<Arc<Module>>)>,
    ) {
        for (request, module) in requests {
            let sent = self.requests.send(ServiceMessage::Find(request, module));
            self.outstanding += usize::from(sent.is_ok());
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
        let line = SourceLine {
            request,
            frame,
            files,
        };
        self.outstanding += usize::from(self.files.send(InFile::Line(line)).is_ok());
    }

    /// Requests to open the perf map of process `pid`.
    pub fn keep_perf_map(&mut self, pid: u32) {
        // Fails only if the thread has ended.
        let _ = self.files.send(InFile::PerfMap(pid));
    }

    /// Drops the perf map of a process that has ended or called exec: its id may be reused.
    pub fn forget(&mut self, pid: u32) {
        // Fails only if the thread has ended.
        let _ = self.requests.send(ServiceMessage::Forget(pid));
    }

    /// Has the files of modules closed after what was asked for so far: nobody has them mapped.
    pub fn close(&mut self, modules: impl IntoIterator<Item = ModuleId>) {
        for module in modules {
            // Without the thread they are closed.
            let _ = self.requests.send(ServiceMessage::Close(module));
        }
    }

    /// The answers received so far.
    pub fn poll(&mut self) -> Vec<ResolvedFrames> {
        let answers: Vec<_> = self.answers.try_iter().collect();
        self.outstanding = self.outstanding.saturating_sub(answers.len());
        answers
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
    messages: &Receiver<ServiceMessage>,
    answers: &Sender<ResolvedFrames>,
) {
    for message in messages {
        let (request, module) = match message {
            ServiceMessage::Find(request, module) => (request, module),
            ServiceMessage::Keep(pid, file) => {
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
        if let Some(module) = &module {
            symbolizer.open(module);
        }
        if answers.send(symbolizer.answer(request)).is_err() {
            return;
        }
    }
}

/// Opens files until the service is dropped. Opening may block on a file system.
fn open_files(
    opener: &Opener,
    wanted: &Receiver<InFile>,
    maps: &Sender<ServiceMessage>,
    answers: &Sender<ResolvedFrames>,
) {
    for wanted in wanted {
        let sent = match wanted {
            InFile::Line(line) => answers.send(source::read(opener, line)).is_ok(),
            InFile::PerfMap(pid) => {
                let map = opener.open(&Wanted::PerfMap(pid), None);
                map.is_none_or(|map| maps.send(ServiceMessage::Keep(pid, map)).is_ok())
            }
        };
        if !sent {
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
        let mut service = Service::start(ReaderHost::default())?;
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
        let mut service = Service::start(ReaderHost::default())?;
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
