//! The collector, which the program contains compressed.

use std::io::Read;
use std::sync::LazyLock;

use flate2::read::ZlibDecoder;

/// The library built from `collector/`.
pub(super) static COLLECTOR: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let compressed: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libgpuprobe_collector.so.z"));
    let mut file = Vec::new();
    // The bytes are the build's own, and whoever gets them checks them.
    if let Err(error) = ZlibDecoder::new(compressed).read_to_end(&mut file) {
        tracing::error!("cannot decompress the collector: {error}");
    }
    file
});
