//! Files of the build that the program contains: the BPF objects and the collector. They are kept compressed, half
//! a megabyte instead of three.

use std::io::Read;
use std::sync::LazyLock;

use flate2::read::ZlibDecoder;

macro_rules! embedded {
    ($name:literal) => {
        LazyLock::new(|| decompressed(include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".z"))))
    };
}

/// The programs, maps and globals of the skeleton.
pub(super) static WITH_TYPES: LazyLock<Vec<u8>> = embedded!("gpuprobe.bpf.o");

/// The same without sessions and kfuncs, for kernels without BTF.
pub(super) static WITHOUT_TYPES: LazyLock<Vec<u8>> = embedded!("without_types.bpf.o");

/// The library built from `collector/`.
pub(super) static COLLECTOR: LazyLock<Vec<u8>> = embedded!("libgpuprobe_collector.so");

fn decompressed(compressed: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    // The bytes are the build's own, and whoever gets them checks them.
    if let Err(error) = ZlibDecoder::new(compressed).read_to_end(&mut file) {
        tracing::error!("cannot decompress a file of the program: {error}");
    }
    file
}
