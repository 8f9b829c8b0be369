//! Single launches, which are sent only for a recording.

use serde::{Deserialize, Serialize};

use crate::abi::{RawLaunch, RawLaunchKey};
use gpuprobe_cuda::Function;

/// A launch call, at its return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The function in the row of the key.
    #[serde(skip, default = "super::unresolved")]
    pub function: &'static Function,
    /// 0 or a CUDA error code.
    pub result: i32,
    /// Process id in the initial PID namespace.
    pub pid: u32,
    /// Thread id in the initial PID namespace.
    pub tid: u32,
    /// Key of the launch counters.
    pub key: RawLaunchKey,
    /// Time of function entry, `CLOCK_MONOTONIC` nanoseconds.
    pub start_ns: u64,
    /// Time of function return, `CLOCK_MONOTONIC` nanoseconds.
    pub end_ns: u64,
    /// Handle of the stream.
    pub stream: u64,
    /// Grid size, blocks; zeroes for a graph.
    pub grid: [u32; 3],
    /// Block size, threads; zeroes for a graph.
    pub block: [u32; 3],
    /// The launch was captured into a graph.
    pub captured: bool,
    /// Stack id within the process; 0 if no stack was taken.
    pub stack: u64,
}

impl Launch {
    pub(super) fn new(raw: &RawLaunch) -> Option<Self> {
        let function = gpuprobe_cuda::function(raw.key.row).filter(|f| f.op.is_launch())?;
        Some(Self {
            function,
            result: raw.result,
            pid: raw.tgid,
            tid: raw.tid,
            key: raw.key,
            start_ns: raw.start_ns,
            end_ns: raw.end_ns,
            stream: raw.stream,
            grid: raw.grid,
            block: raw.block,
            captured: raw.captured != 0,
            stack: raw.stack,
        })
    }
}

#[cfg(test)]
#[allow(clippy::panic, clippy::unwrap_used)]
mod tests {
    use super::super::{Event, decode};

    fn bytes(symbol: &str) -> Vec<u8> {
        let row = gpuprobe_cuda::FUNCTIONS
            .iter()
            .position(|f| f.symbol == symbol);
        let mut bytes = vec![13, 0, 1, 0];
        for number in [700u32, 7, 8] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(0x5000u64.to_le_bytes());
        bytes.extend(9u32.to_le_bytes());
        bytes.extend(u16::try_from(row.unwrap()).unwrap().to_le_bytes());
        bytes.extend(3u16.to_le_bytes());
        for number in [100u64, 200, 0xabc0] {
            bytes.extend(number.to_le_bytes());
        }
        for number in [80u32, 1, 2, 128, 3, 4] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(0x77u64.to_le_bytes());
        bytes
    }

    #[test]
    fn launches_from_literal_bytes() {
        let bytes = bytes("cuLaunchKernel");
        let Event::Launch(launch) = decode(&bytes).unwrap() else {
            panic!("not a launch");
        };
        assert_eq!(launch.function.symbol, "cuLaunchKernel");
        assert_eq!((launch.pid, launch.tid, launch.result), (7, 8, 700));
        assert_eq!((launch.key.handle, launch.key.process), (0x5000, 9));
        assert_eq!((launch.key.epoch, launch.captured), (3, true));
        assert_eq!((launch.start_ns, launch.end_ns), (100, 200));
        assert_eq!((launch.stream, launch.stack), (0xabc0, 0x77));
        assert_eq!((launch.grid, launch.block), ([80, 1, 2], [128, 3, 4]));
    }

    #[test]
    fn functions_that_are_no_launch_are_refused() {
        let whole = bytes("cuLaunchKernel");
        for length in 2..whole.len() {
            assert_eq!(decode(&whole[..length]), None);
        }
        for symbol in ["cudaMalloc", "cuMemcpy"] {
            assert_eq!(decode(&bytes(symbol)), None);
        }
    }
}
