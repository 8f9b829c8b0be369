//! Selection and activation of a libcupti.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, OnceLock, mpsc};

use gpuprobe_wire::WireSettings;

use super::find::{self, Candidate, OVERRIDE_VARIABLE};
use super::library::{CuptiFunctions, Status, status};
use super::worker::{self, Worker};
use super::{CollectorState, SHARED, callbacks, end, off, pool, process};
use crate::cupti::CuptiVersion;

/// Reason why a libcupti is not used.
enum RefusalReason {
    /// The next candidate is tried.
    This(String),
    /// No other candidate is tried.
    All(String),
}

impl From<String> for RefusalReason {
    fn from(why: String) -> Self {
        Self::This(why)
    }
}

/// Starts collecting, or prints why not.
pub(super) fn start(settings: WireSettings) {
    if settings.kinds.is_empty() {
        return off("no kind of activity is requested");
    }
    let (queue, messages) = mpsc::channel();
    let (ends, ended) = mpsc::channel();
    let shared = SHARED.get_or_init(|| CollectorState {
        pool: pool::BufferPool::new(settings.buffer_bytes),
        queue,
        ended: Mutex::new(ended),
        off: AtomicBool::new(false),
        flush_all: OnceLock::new(),
    });
    let started = first_usable(&settings).and_then(|worker| {
        let _already = shared.flush_all.set(worker.functions.flush_all);
        process::at_fork(end::forked);
        process::at_exit(end::last);
        let spawned = worker::spawn(worker, messages, ends);
        spawned.map_err(|error| format!("cannot start a thread: {error}"))
    });
    if let Err(why) = started {
        shared.switch_off();
        off(&why);
    }
}

fn first_usable(settings: &WireSettings) -> Result<Worker, String> {
    let mut reasons = Vec::new();
    for candidate in &find::of_this_process() {
        let path = candidate.path.display();
        match switch_on(candidate, settings) {
            Ok(worker) => return Ok(worker),
            Err(RefusalReason::This(why)) => reasons.push(format!("{path}: {why}")),
            Err(RefusalReason::All(why)) => return Err(format!("{path}: {why}")),
        }
    }
    Err(format!(
        "no libcupti can be used, {OVERRIDE_VARIABLE} can name one: {}",
        reasons.join("; ")
    ))
}

fn switch_on(candidate: &Candidate, settings: &WireSettings) -> Result<Worker, RefusalReason> {
    let functions = CuptiFunctions::open(candidate)?;
    let version = version(&functions)?;
    let subscriber = subscribe(&functions)?;
    let configured = configure(&functions, settings).inspect_err(|_refused| {
        if let (Some(unsubscribe), false) = (functions.unsubscribe, subscriber.is_null()) {
            // SAFETY: `subscriber` was returned by CUPTI.
            unsafe { unsubscribe(subscriber) };
        }
    });
    let (monotonic, enabled) = configured?;
    if !version.is_known() {
        process::say(&format!(
            "CUPTI {version} is newer than this gpuprobe: what its records have had since CUPTI \
             11.8 is read, and no more"
        ));
    }
    listen_to_contexts(&functions, subscriber);
    Ok(Worker {
        functions,
        version,
        monotonic,
        enabled,
        settings: *settings,
    })
}

fn version(functions: &CuptiFunctions) -> Result<CuptiVersion, String> {
    let mut number = 0;
    // SAFETY: `number` is valid.
    let status = unsafe { (functions.version)(&mut number) };
    functions.check("cuptiGetVersion", status)?;
    CuptiVersion::new(number).ok_or_else(|| format!("its API version is {number}, older than 11.8"))
}

/// Subscribes to CUPTI. A process can have one subscriber: this detects another profiler, and keeps
/// a later one, which would take the buffers over, from starting.
fn subscribe(functions: &CuptiFunctions) -> Result<*mut std::ffi::c_void, RefusalReason> {
    let mut subscriber = ptr::null_mut();
    let Some(subscribe) = functions.subscribe else {
        return Ok(subscriber);
    };
    // SAFETY: `subscriber` is valid, and the callback is a function of this library.
    match unsafe { subscribe(&mut subscriber, callbacks::resource, ptr::null_mut()) } {
        status::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED | status::MAX_LIMIT_REACHED => Err(
            RefusalReason::All("another profiler in this process uses CUPTI".to_owned()),
        ),
        status => {
            functions.check("cuptiSubscribe", status)?;
            Ok(subscriber)
        }
    }
}

/// Configures CUPTI. Returns whether times are monotonic, and the enabled kinds.
fn configure(
    functions: &CuptiFunctions,
    settings: &WireSettings,
) -> Result<(bool, Vec<c_int>), String> {
    const SYSTEM_THREAD_IDS: c_int = 1;
    if let Some(set_thread_id_type) = functions.set_thread_id_type {
        // SAFETY: takes a number.
        unsafe { set_thread_id_type(SYSTEM_THREAD_IDS) };
    }
    // CUPTI requires this before any kind is enabled.
    let monotonic = functions.register_timestamp.is_some_and(|register| {
        // SAFETY: a function of this library, which is never unloaded.
        let status = unsafe { register(callbacks::timestamp) };
        status == status::SUCCESS
    });
    promise_zeros(functions);
    // SAFETY: as above.
    let status =
        unsafe { (functions.register_callbacks)(callbacks::requested, callbacks::completed) };
    functions.check("cuptiActivityRegisterCallbacks", status)?;
    if let (Some(enable), true) = (
        functions.allocation_source,
        settings.kinds.contains("memory"),
    ) {
        // SAFETY: takes a number.
        unsafe { enable(1) };
    }
    enable(functions, settings).map(|enabled| (monotonic, enabled))
}

/// Sets `CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER`: without it CUPTI clears every buffer in
/// the program's thread that requests it. Buffers of the pool are zeroed anyway.
fn promise_zeros(functions: &CuptiFunctions) {
    const ZEROED_OUT_ACTIVITY_BUFFER: c_int = 5;
    if let Some(set_attribute) = functions.set_attribute {
        let mut value = 1u8;
        let mut size = size_of_val(&value);
        // SAFETY: CUPTI reads `size` bytes of `value`; it may write to both.
        unsafe {
            set_attribute(
                ZEROED_OUT_ACTIVITY_BUFFER,
                &mut size,
                (&raw mut value).cast(),
            )
        };
    }
}

/// Enables the requested kinds of activity and returns them. Prints a message for each kind that is
/// unavailable, unless all are.
fn enable(functions: &CuptiFunctions, settings: &WireSettings) -> Result<Vec<c_int>, String> {
    let mut enabled = Vec::new();
    let mut refused: Vec<(&str, Status)> = Vec::new();
    for wanted in settings.kinds.iter() {
        let mut status = status::SUCCESS;
        for kind in wanted.cupti {
            let kind = kind.cast_signed();
            if !enabled.contains(&kind) {
                // SAFETY: takes a number.
                status = unsafe { (functions.enable)(kind) };
            }
            if status == status::SUCCESS {
                enabled.push(kind);
                break;
            }
        }
        if status != status::SUCCESS {
            refused.push((wanted.name, status));
        }
    }
    if let (true, Some(&(_, first))) = (enabled.is_empty(), refused.first()) {
        functions.check("cuptiActivityEnable", first)?;
    }
    for (name, status) in refused {
        let text = functions.result_text(status);
        process::say(&format!("activity {name} is not available: {text}"));
    }
    Ok(enabled)
}

fn listen_to_contexts(functions: &CuptiFunctions, subscriber: *mut std::ffi::c_void) {
    if let (Some(enable_callback), false) = (functions.enable_callback, subscriber.is_null()) {
        // Without it, records of a context's last period may be lost. SAFETY: `subscriber` was
        // returned by CUPTI.
        unsafe {
            enable_callback(
                1,
                subscriber,
                callbacks::DOMAIN_RESOURCE,
                callbacks::CONTEXT_DESTROY_STARTING,
            )
        };
    }
}
