//! The collector inside a CUDA program.
//!
//! The driver loads it while it initialises (`CUDA_INJECTION64_PATH`) and calls
//! [`InitializeInjection`]. From then on CUPTI asks for buffers and hands them back filled, on
//! whatever thread it likes (`callbacks`); all that takes time is done by one thread of ours
//! (`worker`).
//!
//! The program must not suffer: nothing here panics into it, writes to its standard output,
//! changes its `errno` or its signals, or takes memory without a bound. In doubt the collector is
//! off, having said why in one line on standard error.
//!
//! Complete records are asked of CUPTI every [`Settings::flush_ms`], before a context goes, and
//! when the program exits. `_exit`, `execve` and signals that kill leave no time for the last: what
//! happened since the last period is lost then, and that no batch says it is the last shows it.
//! So is what destructors do after `exit` has called the handlers that were registered after the
//! driver was initialised.

mod batch;
mod callbacks;
mod end;
mod find;
mod guess;
mod library;
mod nvtx;
mod pool;
mod process;
mod start;
mod trust;
mod worker;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

pub use nvtx::{InitializeInjectionNvtx, InitializeInjectionNvtx2};

use gpuprobe_wire::{self as wire, Settings};
use worker::Queue;

/// State that callbacks and the worker share. There is one, and it is never freed: CUPTI may call back
/// as long as the process lives.
struct Shared {
    pool: pool::Pool,
    queue: Queue,
    /// Nothing more is to be done: gpuprobe is gone, the process is ending, or it is the child of
    /// a fork, whose CUDA is of no use anyway.
    off: AtomicBool,
    flush_all: OnceLock<library::FlushAll>,
}

impl Shared {
    fn switch_off(&self) {
        self.off.store(true, Ordering::Release);
    }
}

static SHARED: OnceLock<Shared> = OnceLock::new();

/// [`SHARED`], unless nothing more is to be done.
fn active() -> Option<&'static Shared> {
    SHARED
        .get()
        .filter(|shared| !shared.off.load(Ordering::Acquire))
}

/// Called by the CUDA driver, once a process, while it initialises. The 1 says that all is well,
/// as it always is for the program.
#[allow(non_snake_case, reason = "the driver looks for it by this name")]
#[allow(unsafe_code, reason = "its symbol")]
// SAFETY: nothing else that a CUDA program contains has this name, except another injection,
// which the driver looks up in its own library.
#[cfg_attr(feature = "injection", unsafe(no_mangle))]
pub extern "C" fn InitializeInjection() -> i32 {
    static CALLED: AtomicBool = AtomicBool::new(false);
    if !CALLED.swap(true, Ordering::AcqRel) {
        guarded(|| {
            // Not ours to say anything where gpuprobe is not meant: the variable that names this
            // library may have been inherited without the one for us.
            let Some(text) = std::env::var_os(wire::SETTINGS_VARIABLE) else {
                return;
            };
            let settings: Result<Settings, _> = text.to_string_lossy().parse();
            match settings {
                Ok(settings) => start::start(settings),
                Err(error) => off(&format!("{}: {error}", wire::SETTINGS_VARIABLE)),
            }
        });
    }
    1
}

/// Says why nothing is collected, or not any more.
fn off(why: &str) {
    process::say(&format!(
        "activity of the GPU is not collected in process {}: {why}",
        std::process::id()
    ));
}

/// Runs `body` for a caller that knows nothing of panics, and leaves `errno` as it was.
fn guarded(body: impl FnOnce()) {
    let errno = process::errno();
    if catch_unwind(AssertUnwindSafe(body)).is_err()
        && let Some(shared) = SHARED.get()
    {
        shared.switch_off();
    }
    process::set_errno(errno);
}
