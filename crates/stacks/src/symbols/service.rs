//! Naming functions on a thread of its own: a symbol table of half a gigabyte takes a while, and
//! whoever reads the kernel's rings must not wait.

use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::source::{self, Files, Line};
use super::{Answer, Request, Symbolizer};
use crate::Module;
use crate::reader::{Kind, Opener, Place, Reader, Wanted};
use gpuprobe_model::stack::{Frame, ModuleId};
use gpuprobe_os::privileges;
use gpuprobe_os::privileges::{AS_OTHERS, LOOK};

/// A message to the thread.
#[derive(Debug)]
enum Message {
    Find(Request, Option<Arc<Module>>),
    Keep(u32, File),
    Forget(u32),
    Close(ModuleId),
}

/// What is wanted of the thread that has files opened.
#[derive(Debug)]
enum InFile {
    Line(Line),
    PerfMap(u32),
}

/// A thread that has functions named, and one that has files opened and reads lines of Python. Each ends after the request at
/// hand when this is dropped.
#[derive(Debug)]
pub struct Service {
    requests: Sender<Message>,
    files: Sender<InFile>,
    answers: Receiver<Answer>,
    outstanding: usize,
}

impl Service {
    /// Starts the threads. They keep the capabilities that it takes to start another opener.
    ///
    /// # Errors
    /// There are too many threads.
    pub fn start(place: Place) -> std::io::Result<Self> {
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
                let mut symbolizer = Symbolizer::new(Reader::new(Kind::Names, place), opener);
                serve(&mut symbolizer, &received, &sender);
            })?;
        Ok(Self {
            requests,
            files,
            answers,
            outstanding: 0,
        })
    }

    /// Asks for the functions at some locations, without waiting. Each comes with the module that
    /// it names.
    pub fn request(&mut self, requests: impl IntoIterator<Item = (Request, Option<Arc<Module>>)>) {
        for (request, module) in requests {
            let sent = self.requests.send(Message::Find(request, module));
            self.outstanding += usize::from(sent.is_ok());
        }
    }

    /// Asks for the text of the line of `frame`, if it is the user's own, without waiting. It is in a
    /// file of those.
    pub fn request_line(&mut self, request: Request, frame: Frame, files: Option<Arc<Files>>) {
        let line = Line {
            request,
            frame,
            files,
        };
        self.outstanding += usize::from(self.files.send(InFile::Line(line)).is_ok());
    }

    /// Has the file opened in which process `pid` writes down what its runtime has made.
    pub fn keep_perf_map(&mut self, pid: u32) {
        // Without the thread nobody asks for names.
        let _ = self.files.send(InFile::PerfMap(pid));
    }

    /// The process runs another program or has ended: the names that its runtime gave to what it
    /// made are not those of a process that gets its id.
    pub fn forget(&mut self, pid: u32) {
        // Without the thread there is nothing to forget.
        let _ = self.requests.send(Message::Forget(pid));
    }

    /// Has the files of modules closed after what was asked for so far: nobody has them mapped.
    pub fn close(&mut self, modules: impl IntoIterator<Item = ModuleId>) {
        for module in modules {
            // Without the thread they are closed.
            let _ = self.requests.send(Message::Close(module));
        }
    }

    /// The answers that have come by now.
    pub fn poll(&mut self) -> Vec<Answer> {
        let answers: Vec<_> = self.answers.try_iter().collect();
        self.outstanding = self.outstanding.saturating_sub(answers.len());
        answers
    }

    /// Waits until everything is answered, but not for longer than `timeout`; gives what is.
    pub fn wait(&mut self, timeout: Duration) -> Vec<Answer> {
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

    /// How many locations have been asked for and not been answered yet.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }
}

fn serve(symbolizer: &mut Symbolizer, messages: &Receiver<Message>, answers: &Sender<Answer>) {
    for message in messages {
        let (request, module) = match message {
            Message::Find(request, module) => (request, module),
            Message::Keep(pid, file) => {
                symbolizer.keep_perf_map(pid, file);
                continue;
            }
            Message::Forget(pid) => {
                symbolizer.forget(pid);
                continue;
            }
            Message::Close(module) => {
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

/// Has files opened until nobody wants any more: whoever serves one may not answer.
fn open_files(
    opener: &Opener,
    wanted: &Receiver<InFile>,
    maps: &Sender<Message>,
    answers: &Sender<Answer>,
) {
    for wanted in wanted {
        let sent = match wanted {
            InFile::Line(line) => answers.send(source::read(opener, line)).is_ok(),
            InFile::PerfMap(pid) => {
                let map = opener.open(&Wanted::PerfMap(pid), None);
                map.is_none_or(|map| maps.send(Message::Keep(pid, map)).is_ok())
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
    use gpuprobe_model::stack::Location;

    /// Who is at address 0x1000, which is in no file.
    fn name(service: &mut Service) -> String {
        let pid = std::process::id();
        let location = Location {
            address: 0x1000,
            module: None,
            offset: 0,
        };
        let request = Request {
            pid,
            location,
            is_innermost: true,
        };
        service.request([(request, None)]);
        let answers = service.wait(Duration::from_secs(60));
        let frames = answers.into_iter().flat_map(|answer| answer.frames);
        frames.map(|frame| frame.function).collect()
    }

    #[test]
    fn names_of_a_process_that_had_the_id_are_forgotten() -> std::io::Result<()> {
        let pid = std::process::id();
        let map = format!("/tmp/perf-{pid}.map");
        let mut service = Service::start(Place::Thread)?;
        std::fs::write(&map, "1000 10 of_the_first\n")?;
        assert_eq!(name(&mut service), "of_the_first");
        std::fs::write(&map, "1000 10 of_its_successor\n")?;
        assert_eq!(name(&mut service), "of_the_first");
        service.forget(pid);
        assert_eq!(name(&mut service), "of_its_successor");
        std::fs::remove_file(map)
    }
}
