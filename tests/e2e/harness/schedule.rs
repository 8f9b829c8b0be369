//! Tests that must not run at the same time, of this process or another: another checkout's tests disturb these in the
//! same way. A host-wide tracer sees the programs of every test.

use std::fs::File;

fn file() -> File {
    File::create("/dev/shm/gpuprobe-tests.lock").expect("/dev/shm can be written to")
}

/// A permit for tests with a host-wide tracer, until it is dropped.
pub(crate) fn host_wide() -> File {
    let file = file();
    file.lock_shared().expect("the lock can be taken");
    file
}

/// A permit for tests with more events than a host-wide tracer can keep up with, or that need all processors: one at a
/// time, and none with a host-wide tracer beside it.
pub(crate) fn alone() -> File {
    let file = file();
    file.lock().expect("the lock can be taken");
    file
}
