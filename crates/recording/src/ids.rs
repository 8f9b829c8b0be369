//! Ids in exports: serialized global process and thread ids, and ids of contexts.

use gpuprobe_model::event::{CONTEXT_UNKNOWN, MAX_DEVICES};

/// Base of all ids in Linux exports: hardware id 0, virtual machine id 1.
pub const BASE: i64 = 1 << 48;

const ID_MASK: i64 = 0xff_ffff;

/// The global id of a process.
pub fn global_pid(pid: u32) -> i64 {
    BASE | (i64::from(pid) & ID_MASK) << 24
}

/// The global id of a thread.
pub fn global_tid(pid: u32, tid: u32) -> i64 {
    global_pid(pid) | i64::from(tid) & ID_MASK
}

/// The process id in a global process or thread id.
pub fn pid(global: i64) -> u32 {
    u32::try_from(global >> 24 & ID_MASK).unwrap_or(0)
}

/// The thread id in a global thread id.
pub fn tid(global: i64) -> u32 {
    u32::try_from(global & ID_MASK).unwrap_or(0)
}

/// The global process id of a global thread id.
pub fn process_of(global_tid: i64) -> i64 {
    global_tid & !ID_MASK
}

/// The `correlationId` of a call that CUPTI numbered `id`, in the process with this number, from 1:
/// CUPTI's numbers begin anew in every process. Those of calls of probes have 32 bits.
pub(crate) fn cupti_correlation(process: u32, id: u32) -> i64 {
    i64::from(process) << 32 | i64::from(id)
}

/// The `contextId` of a context: a primary or unknown context has the number after its device's;
/// created contexts have higher numbers.
pub(crate) fn context_id(device: u16, number: u16) -> i64 {
    match number {
        0 | CONTEXT_UNKNOWN => i64::from(device) + 1,
        made => i64::from(MAX_DEVICES) + i64::from(made),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_a_real_export() {
        assert_eq!(global_pid(999), 281_491_737_149_440);
        assert_eq!(global_tid(999, 1015), 281_491_737_150_455);
        assert_eq!(
            (pid(281_491_737_150_455), tid(281_491_737_150_455)),
            (999, 1015)
        );
        assert_eq!(process_of(281_491_737_150_455), 281_491_737_149_440);
        // Of larger ids, 24 bits.
        assert_eq!(global_pid(0x0100_03e7), global_pid(999));
        assert_eq!(global_tid(999, 0x0100_0001), global_tid(999, 1));
    }

    #[test]
    fn correlation_ids_of_cupti_are_those_of_a_process() {
        assert_eq!(cupti_correlation(1, 4), 0x1_0000_0004);
        assert_eq!(cupti_correlation(2, u32::MAX), 0x2_ffff_ffff);
    }

    #[test]
    fn created_contexts_have_their_own_ids() {
        assert_eq!(context_id(0, 0), 1);
        assert_eq!(context_id(3, CONTEXT_UNKNOWN), 4);
        let largest_primary = context_id(MAX_DEVICES - 1, 0);
        assert_eq!(context_id(0, 1), largest_primary + 1);
    }

    #[test]
    fn ids_of_another_host_keep_their_base() {
        // Hardware id 1, as in exports from Windows.
        let global = 1 << 56 | 1234 << 24 | 77;
        assert_eq!((pid(global), tid(global)), (1234, 77));
        assert_eq!(pid(-1), 0xff_ffff);
    }
}
