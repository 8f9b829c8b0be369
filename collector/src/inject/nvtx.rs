//! NVTX ranges and names.
//!
//! NVTX loads the library in `NVTX_INJECTION64_PATH` at its first call, which may precede CUDA's
//! initialisation. CUPTI is such a library, but only the collector knows its path: it is named
//! instead and forwards the call to the libcupti that it uses or is going to use.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};

use gpuprobe_wire as wire;

use super::find;
use super::guarded;
use super::library;

/// Called by NVTX 3. Returning 0 disables all of NVTX.
#[allow(non_snake_case, reason = "NVTX looks for it by this name")]
// SAFETY: NVTX looks it up in this library alone.
#[cfg_attr(feature = "injection", unsafe(no_mangle))]
pub extern "C" fn InitializeInjectionNvtx2(export_table: *mut c_void) -> i32 {
    forward(c"InitializeInjectionNvtx2", export_table)
}

/// Called by older versions of NVTX.
#[allow(non_snake_case, reason = "NVTX looks for it by this name")]
// SAFETY: as above.
#[cfg_attr(feature = "injection", unsafe(no_mangle))]
pub extern "C" fn InitializeInjectionNvtx(export_table: *mut c_void) -> i32 {
    forward(c"InitializeInjectionNvtx", export_table)
}

fn forward(name: &CStr, export_table: *mut c_void) -> i32 {
    let mut result = 0;
    guarded(|| {
        if std::env::var_os(wire::SETTINGS_VARIABLE).is_none() {
            return;
        }
        // The copy that the process has mapped comes first: it is the one in use, if any.
        let entries = find::of_this_process().into_iter();
        let entry = entries
            .filter_map(|candidate| library::nvtx_entry(&candidate, name))
            .next();
        if let Some(entry) = entry {
            // SAFETY: CUPTI's own function, with the argument of NVTX.
            result = unsafe { entry(export_table) };
        }
    });
    result
}
