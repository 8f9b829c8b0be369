//! The collector inside a CUDA program.
//!
//! The driver loads it while it initialises (`CUDA_INJECTION64_PATH`) and calls
//! [`InitializeInjection`]. From then on CUPTI requests buffers and returns them filled, on any
//! thread (`callbacks`); time-consuming work is done by the collector's own thread (`worker`).
//!
//! The program must not be disturbed: the collector does not panic into it, write to its standard
//! output, change its `errno` or signals, or allocate unbounded memory. In doubt the collector
//! turns itself off after printing the reason in one line on standard error.
//!
//! Complete records are requested from CUPTI every [`WireSettings::flush_ms`], before a context is
//! destroyed, and at exit. `_exit`, `execve` and fatal signals leave no time for that: records
//! since the last flush are lost, which is visible because no batch is marked as the last. So are
//! records of destructors that run after the exit handlers registered since the driver was
//! initialised.

mod batch;
mod callbacks;
mod end;
mod find;
mod library;
mod nvtx;
mod pool;
mod process;
mod start;
mod worker;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Mutex, OnceLock};

pub use nvtx::{InitializeInjectionNvtx, InitializeInjectionNvtx2};

use gpuprobe_wire::{self as wire, WireSettings};
use worker::Message;

/// State shared by callbacks and worker. There is one, and it is never freed: CUPTI may call back
/// as long as the process runs.
struct CollectorState {
    pool: pool::BufferPool,
    queue: Sender<Message>,
    /// Its other end is dropped when the thread has finished.
    ended: Mutex<Receiver<()>>,
    /// Collection has stopped: gpuprobe has exited, the process is exiting, or it is the child of a
    /// fork, in which CUDA does not work.
    off: AtomicBool,
    flush_all: OnceLock<library::FlushAll>,
}

impl CollectorState {
    fn switch_off(&self) {
        self.off.store(true, Ordering::Release);
    }
}

static SHARED: OnceLock<CollectorState> = OnceLock::new();

/// [`SHARED`], unless collection has stopped.
fn active() -> Option<&'static CollectorState> {
    SHARED
        .get()
        .filter(|shared| !shared.off.load(Ordering::Acquire))
}

/// Called by the CUDA driver once per process, while it initialises. Always returns 1 (success), so
/// that the program is not affected by a failure.
#[allow(non_snake_case, reason = "the driver looks for it by this name")]
#[allow(unsafe_code, reason = "its symbol")]
// SAFETY: no other function of a CUDA program has this name, except in another injection library,
// which the driver looks up separately.
#[cfg_attr(feature = "injection", unsafe(no_mangle))]
pub extern "C" fn InitializeInjection() -> i32 {
    static CALLED: AtomicBool = AtomicBool::new(false);
    if !CALLED.swap(true, Ordering::AcqRel) {
        guarded(|| {
            // Silent without settings: the program may have inherited the variable that names this
            // library, but not the collector's own.
            let Some(text) = std::env::var_os(wire::SETTINGS_VARIABLE) else {
                return;
            };
            let settings: Result<WireSettings, _> = text.to_string_lossy().parse();
            match settings {
                Ok(settings) => start::start(settings),
                Err(error) => off(&format!("{}: {error}", wire::SETTINGS_VARIABLE)),
            }
        });
    }
    1
}

/// Prints why collection is off or has stopped.
fn off(why: &str) {
    process::say(&format!(
        "GPU activity is not collected in process {}: {why}",
        std::process::id()
    ));
}

/// Runs `body` for a C caller: panics are caught, and `errno` is restored.
fn guarded(body: impl FnOnce()) {
    let errno = process::errno();
    if catch_unwind(AssertUnwindSafe(body)).is_err()
        && let Some(shared) = SHARED.get()
    {
        shared.switch_off();
    }
    process::set_errno(errno);
}
