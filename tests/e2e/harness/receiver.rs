//! A server that documents are pushed to.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use super::wait_for;

/// A request with its body.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) line: String,
    pub(crate) headers: Vec<String>,
    pub(crate) body: Vec<u8>,
    /// Status of the answer.
    pub(crate) status: u16,
}

#[derive(Default)]
struct State {
    status: AtomicU16,
    all: Mutex<Vec<Received>>,
}

/// Keeps requests, and answers each with one status. It ends with the test.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

impl Receiver {
    /// Listens on a free port of 127.0.0.1.
    pub(crate) fn start(status: u16) -> Self {
        Self::on("127.0.0.1:0".parse().unwrap(), status)
    }

    pub(crate) fn on(address: SocketAddr, status: u16) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        state.status.store(status, Ordering::Relaxed);
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming() {
                // Some clients leave.
                let _ = answer(&stream.unwrap(), &shared);
            }
        });
        Self { address, state }
    }

    /// Answers with `status` from now on.
    pub(crate) fn set_status(&self, status: u16) {
        self.state.status.store(status, Ordering::Relaxed);
    }

    /// All requests so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.state.all.lock().unwrap().clone()
    }

    /// Waits for requests that satisfy `wanted`.
    pub(crate) fn wait_for<T>(&self, what: &str, wanted: impl Fn(&[Received]) -> Option<T>) -> T {
        wait_for(what, || wanted(&self.received()))
    }
}

fn answer(stream: &TcpStream, state: &State) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        head.push(line.to_owned());
    }
    let length = head.iter().find_map(|line| {
        let length = line.to_lowercase();
        length.strip_prefix("content-length: ")?.parse().ok()
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    let status = state.status.load(Ordering::Relaxed);
    if !head.is_empty() {
        state.all.lock().unwrap().push(Received {
            line: head.remove(0),
            headers: head,
            body,
            status,
        });
    }
    let text = if status == 200 { "" } else { "go away" };
    let length = text.len();
    write!(
        &mut &*stream,
        "HTTP/1.1 {status} Status\r\nContent-Length: {length}\r\n\r\n{text}"
    )
}
