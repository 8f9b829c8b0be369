//! Number of GPUs, as far as known without CUDA.

use std::fs;

use gpuprobe_os::proc;

/// Number of NVIDIA GPUs of the driver on this host; `None` if it is not loaded.
pub fn on_host() -> Option<usize> {
    let entries = fs::read_dir("/proc/driver/nvidia/gpus").ok()?;
    Some(entries.flatten().count())
}

/// Whether process `pid` can see a single GPU only: the host has one, or the process was started
/// with one in `CUDA_VISIBLE_DEVICES`.
pub fn single_for(pid: u32) -> bool {
    match on_host() {
        Some(1) => true,
        Some(0) => false,
        _ => variable(pid, "CUDA_VISIBLE_DEVICES").is_some_and(|list| names_one_device(&list)),
    }
}

/// The value of environment variable `name` when process `pid` was started.
pub fn variable(pid: u32, name: &str) -> Option<String> {
    let environment = proc::environment(pid).ok()?;
    let value = |entry| <[u8]>::strip_prefix(entry, name.as_bytes())?.strip_prefix(b"=");
    let value = environment.split(|&b| b == 0).find_map(value)?;
    Some(String::from_utf8_lossy(value).into_owned())
}

fn names_one_device(list: &str) -> bool {
    let list = list.trim();
    !list.is_empty() && !list.contains(',') && list != "-1" && list != "NoDevFiles"
}

#[cfg(test)]
mod tests {
    use super::names_one_device;

    #[test]
    fn lists_with_a_single_device_are_recognised() {
        for one in ["0", " 3 ", "GPU-8932f937", "MIG-GPU-8932f937/1/2"] {
            assert!(names_one_device(one), "{one}");
        }
        for other in ["", "0,1", "-1", "NoDevFiles", "GPU-1,GPU-2"] {
            assert!(!names_one_device(other), "{other}");
        }
    }
}
