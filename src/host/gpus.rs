//! Number of GPUs, as far as known without CUDA.

use std::fs;

/// Number of NVIDIA GPUs of the driver on this host; `None` if it is not loaded.
pub fn on_host() -> Option<usize> {
    let entries = fs::read_dir("/proc/driver/nvidia/gpus").ok()?;
    Some(entries.flatten().count())
}

/// Whether a process that was started with this `CUDA_VISIBLE_DEVICES` can see a single GPU only: the host
/// has one, or it names one.
pub fn is_single(visible: Option<&str>) -> bool {
    match on_host() {
        Some(1) => true,
        Some(0) => false,
        _ => visible.is_some_and(names_one_device),
    }
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
