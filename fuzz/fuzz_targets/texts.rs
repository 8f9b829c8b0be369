//! Any text as the output of nvidia-smi, and as a usage report.
#![no_main]

#[path = "../entry/report.rs"]
mod report;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let text = String::from_utf8_lossy(text);
    report::plot_text(&text, std::path::Path::new("/dev/shm/gpuprobe-fuzz.svg"));
});
