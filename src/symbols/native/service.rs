//! Naming functions on a thread of its own: a symbol table of half a gigabyte takes a while, and
//! whoever reads the kernel's rings must not wait.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::Symbolizer;
use crate::stacks::{Frame, Location, Module};

/// Hostile debugging information may be nested deeply.
const STACK_BYTES: usize = 64 << 20;

/// A location whose functions are wanted.
#[derive(Clone, Debug)]
pub struct Request {
    /// The process.
    pub pid: u32,
    /// The place in it.
    pub location: Location,
    /// It is the first of its stack.
    pub is_innermost: bool,
    /// The module that it names.
    pub module: Option<Arc<Module>>,
}

/// The functions at a location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The process.
    pub pid: u32,
    /// The place in it.
    pub location: Location,
    /// It is the first of its stack.
    pub is_innermost: bool,
    /// Innermost first; never empty.
    pub frames: Vec<Frame>,
}

/// A thread that names functions. It ends after the request at hand when this is dropped.
#[derive(Debug)]
pub struct Service {
    requests: Sender<Request>,
    answers: Receiver<Answer>,
    outstanding: usize,
}

impl Service {
    /// Starts the thread.
    ///
    /// # Errors
    /// There are too many threads.
    pub fn start() -> std::io::Result<Self> {
        let (requests, received) = channel();
        let (sender, answers) = channel();
        thread::Builder::new()
            .name("symbols".into())
            .stack_size(STACK_BYTES)
            .spawn(move || serve(&received, &sender))?;
        Ok(Self {
            requests,
            answers,
            outstanding: 0,
        })
    }

    /// Asks for the functions at some locations, without waiting.
    pub fn request(&mut self, requests: impl IntoIterator<Item = Request>) {
        for request in requests {
            self.outstanding += usize::from(self.requests.send(request).is_ok());
        }
    }

    /// What has been answered by now.
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

fn serve(requests: &Receiver<Request>, answers: &Sender<Answer>) {
    let mut symbolizer = Symbolizer::new();
    for request in requests {
        let Request {
            pid,
            location,
            is_innermost,
            module,
        } = request;
        let frames = symbolizer.frames(pid, &location, module.as_ref(), is_innermost);
        let answer = Answer {
            pid,
            location,
            is_innermost,
            frames,
        };
        if answers.send(answer).is_err() {
            return;
        }
    }
}
