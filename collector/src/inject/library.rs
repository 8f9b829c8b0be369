//! A libcupti, opened at run time.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem;
use std::path::Path;
use std::ptr;

use super::find::{Candidate, Origin, trusted};
use super::process;

/// `CUptiResult`.
pub(super) type Status = c_int;

/// Values of `CUptiResult` that are handled.
pub(super) mod status {
    use super::Status;

    pub(in crate::inject) const SUCCESS: Status = 0;
    /// In older versions: there is a subscriber already; from `cuptiActivityGetNextRecord`: no more
    /// records.
    pub(in crate::inject) const MAX_LIMIT_REACHED: Status = 12;
    pub(in crate::inject) const MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED: Status = 39;
}

pub(super) type Requested = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
pub(super) type Completed = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
pub(super) type Timestamp = extern "C" fn() -> u64;
pub(super) type Callback = extern "C" fn(*mut c_void, c_int, u32, *const c_void);
pub(super) type FlushAll = unsafe extern "C" fn(u32) -> Status;

macro_rules! functions {
    (
        needed { $($needed:ident = $needed_symbol:literal: fn($($needed_type:ty),*);)+ }
        wanted { $($wanted:ident = $wanted_symbol:literal: fn($($wanted_type:ty),*);)+ }
    ) => {
        /// CUPTI functions in use.
        #[derive(Clone, Copy)]
        pub(super) struct CuptiFunctions {
            $(pub(super) $needed: unsafe extern "C" fn($($needed_type),*) -> Status,)+
            $(pub(super) $wanted: Option<unsafe extern "C" fn($($wanted_type),*) -> Status>,)+
        }

        impl CuptiFunctions {
            /// # Safety
            /// `handle` must be of a libcupti.
            unsafe fn of(handle: *mut c_void) -> Result<Self, String> {
                // SAFETY: the types are those of CUPTI's headers and equal in all versions.
                unsafe {
                    Ok(Self {
                        $($needed: function(handle, $needed_symbol).ok_or_else(|| {
                            format!("missing symbol {}", $needed_symbol.to_string_lossy())
                        })?,)+
                        $($wanted: function(handle, $wanted_symbol),)+
                    })
                }
            }
        }
    };
}

functions! {
    needed {
        version = c"cuptiGetVersion": fn(*mut u32);
        register_callbacks = c"cuptiActivityRegisterCallbacks": fn(Requested, Completed);
        enable = c"cuptiActivityEnable": fn(c_int);
        flush_all = c"cuptiActivityFlushAll": fn(u32);
        next_record = c"cuptiActivityGetNextRecord": fn(*mut u8, usize, *mut *mut u8);
    }
    wanted {
        disable = c"cuptiActivityDisable": fn(c_int);
        dropped = c"cuptiActivityGetNumDroppedRecords": fn(*mut c_void, u32, *mut usize);
        timestamp = c"cuptiGetTimestamp": fn(*mut u64);
        register_timestamp = c"cuptiActivityRegisterTimestampCallback": fn(Timestamp);
        callback_name = c"cuptiGetCallbackName": fn(c_int, u32, *mut *const c_char);
        result_string = c"cuptiGetResultString": fn(Status, *mut *const c_char);
        set_attribute = c"cuptiActivitySetAttribute": fn(c_int, *mut usize, *mut c_void);
        set_thread_id_type = c"cuptiSetThreadIdType": fn(c_int);
        allocation_source = c"cuptiActivityEnableAllocationSource": fn(u8);
        subscribe = c"cuptiSubscribe": fn(*mut *mut c_void, Callback, *mut c_void);
        unsubscribe = c"cuptiUnsubscribe": fn(*mut c_void);
        enable_callback = c"cuptiEnableCallback": fn(u32, *mut c_void, c_int, u32);
    }
}

/// # Safety
/// `handle` must be of an open library, and `F` the type of the function, a pointer.
unsafe fn function<F>(handle: *mut c_void, name: &CStr) -> Option<F> {
    const { assert!(size_of::<Option<F>>() == size_of::<*mut c_void>()) };
    // SAFETY: guaranteed by the caller; an Option of a function has the layout of a nullable
    // pointer.
    unsafe { mem::transmute_copy(&libc::dlsym(handle, name.as_ptr())) }
}

impl CuptiFunctions {
    /// Opens `candidate`.
    pub(super) fn open(candidate: &Candidate) -> Result<Self, String> {
        let handle = open(candidate)?;
        // SAFETY: it has the name and the symbols of libcupti. A library without them is closed, so
        // that the dynamic loader does not use it for others of its name: none of its functions
        // have been called.
        unsafe {
            Self::of(handle).inspect_err(|_lacking| {
                libc::dlclose(handle);
            })
        }
    }

    /// # Errors
    /// Returns CUPTI's message if `call` has failed.
    pub(super) fn check(&self, call: &str, status: Status) -> Result<(), String> {
        match status {
            status::SUCCESS => Ok(()),
            _ => Err(format!("{call}: {}", self.result_text(status))),
        }
    }

    /// CUPTI's name for `status`.
    pub(super) fn result_text(&self, status: Status) -> String {
        let mut text = ptr::null();
        if let Some(result_string) = self.result_string {
            // SAFETY: `text` is valid.
            unsafe { result_string(status, &mut text) };
        }
        if text.is_null() {
            return format!("error {status}");
        }
        // SAFETY: a constant text of CUPTI.
        let text = unsafe { CStr::from_ptr(text) };
        format!("{} ({status})", text.to_string_lossy())
    }
}

/// Once CUPTI was called, it is never closed: it has its own threads and hooks.
fn open(candidate: &Candidate) -> Result<*mut c_void, String> {
    let mut mode = libc::RTLD_NOW | libc::RTLD_LOCAL;
    let path = match candidate.origin {
        Origin::Mapped => {
            // The mapped copy, even if its file was replaced.
            mode |= libc::RTLD_NOLOAD;
            candidate.path.clone()
        }
        Origin::Named => candidate.path.clone(),
        Origin::Near => trusted(&candidate.path, process::own_uid())?,
    };
    let path = CString::new(path.into_os_string().into_encoded_bytes())
        .map_err(|_zero| "its path contains a NUL byte".to_owned())?;
    // SAFETY: runs the constructors of a library that the user named, or that only they and root could have placed.
    let handle = unsafe { libc::dlopen(path.as_ptr(), mode) };
    if handle.is_null() {
        return Err(loader_error(&candidate.path));
    }
    Ok(handle)
}

/// The function that NVTX would call in `candidate`.
pub(super) fn nvtx_entry(
    candidate: &Candidate,
    name: &CStr,
) -> Option<unsafe extern "C" fn(*mut c_void) -> c_int> {
    let handle = open(candidate).ok()?;
    // SAFETY: the library is open, and the type is that of both functions in NVTX's headers.
    unsafe { function(handle, name) }
}

/// The dynamic loader's error without the path, which the message contains anyway.
fn loader_error(path: &Path) -> String {
    // SAFETY: the text is valid until the next call of this thread.
    let error = unsafe {
        let error = libc::dlerror();
        if error.is_null() {
            return "it cannot be opened".to_owned();
        }
        CStr::from_ptr(error).to_string_lossy().into_owned()
    };
    let prefix = format!("{}: ", path.display());
    error.strip_prefix(&prefix).unwrap_or(&error).to_owned()
}
