//! Ranges and names that a program gives through NVTX.
//!
//! NVTX loads what `NVTX_INJECTION64_PATH` names at its first call, which may come before CUDA is
//! initialised. CUPTI is such a library, but where it is, only the collector knows: named in its
//! place, it hands the call on to the libcupti that it uses or is going to use.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};

use gpuprobe_wire as wire;

use super::guarded;
use super::library;
use super::start;

/// Called by NVTX 3. 0 makes all of its functions do nothing.
#[allow(non_snake_case, reason = "NVTX looks for it by this name")]
// SAFETY: NVTX looks it up in this library alone.
#[cfg_attr(feature = "injection", unsafe(no_mangle))]
pub extern "C" fn InitializeInjectionNvtx2(export_table: *mut c_void) -> i32 {
    hand_on(c"InitializeInjectionNvtx2", export_table)
}

/// Called by older ones.
#[allow(non_snake_case, reason = "NVTX looks for it by this name")]
// SAFETY: as above.
#[cfg_attr(feature = "injection", unsafe(no_mangle))]
pub extern "C" fn InitializeInjectionNvtx(export_table: *mut c_void) -> i32 {
    hand_on(c"InitializeInjectionNvtx", export_table)
}

fn hand_on(name: &CStr, export_table: *mut c_void) -> i32 {
    let mut result = 0;
    guarded(|| {
        if std::env::var_os(wire::SETTINGS_VARIABLE).is_none() {
            return;
        }
        // The copy that the process has is the first of them: the one that is in use, if any is.
        let entries = start::candidates().into_iter();
        let entry = entries
            .filter_map(|candidate| library::nvtx_entry(&candidate, name))
            .next();
        if let Some(entry) = entry {
            // SAFETY: CUPTI's own function, with what NVTX gave.
            result = unsafe { entry(export_table) };
        }
    });
    result
}
