//! Files of the build that the program contains: the BPF objects and the collector. They are kept compressed, half
//! a megabyte instead of three.

use std::cell::Cell;
use std::io::Read;
use std::ptr::NonNull;
use std::sync::LazyLock;

use flate2::read::ZlibDecoder;
use nix::sys::mman::{MmapAdvise, madvise};
use nix::unistd::{SysconfVar, sysconf};

macro_rules! embedded {
    ($name:literal) => {
        decompressed(include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".z")))
    };
}

/// The library built from `collector/`.
pub(super) static COLLECTOR: LazyLock<Vec<u8>> =
    LazyLock::new(|| embedded!("libgpuprobe_collector.so"));

thread_local! {
    /// The object that this thread opened last.
    static OPENED: Cell<&'static [u8]> = const { Cell::new(&[]) };
}

/// The programs, maps and globals of the skeleton; without sessions and kfuncs for kernels without BTF (`has_types`).
pub(super) fn object(has_types: bool) -> Vec<u8> {
    match has_types {
        true => embedded!("gpuprobe.bpf.o"),
        false => embedded!("without_types.bpf.o"),
    }
}

/// An object for the skeleton, which keeps a reference for the life of the program.
pub(super) fn object_to_open(has_types: bool) -> &'static [u8] {
    let object = object(has_types).leak();
    OPENED.set(object);
    object
}

/// Gives the memory back of the object that this thread opened: libbpf has copied what it needs.
pub(super) fn opened() {
    let object = OPENED.take();
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    let Some(page) = page.and_then(|bytes| usize::try_from(bytes).ok()) else {
        return;
    };
    let Some(pages) = object.get(object.as_ptr().align_offset(page)..) else {
        return;
    };
    let bytes = pages.len() / page * page;
    // SAFETY: these are whole pages of an allocation that is never freed, and nobody reads them any more: after the
    // opening, neither libbpf (`bpf_object__elf_finish`) nor the skeleton.
    #[allow(unsafe_code)]
    let result = unsafe {
        madvise(
            NonNull::from(pages).cast(),
            bytes,
            MmapAdvise::MADV_DONTNEED,
        )
    };
    if let Err(error) = result {
        tracing::debug!("the BPF object stays in memory: {error}");
    }
}

fn decompressed(compressed: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    // The bytes are the build's own, and whoever gets them checks them.
    if let Err(error) = ZlibDecoder::new(compressed).read_to_end(&mut file) {
        tracing::error!("cannot decompress a file of the program: {error}");
    }
    file
}
