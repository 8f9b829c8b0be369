//! Any text as the output of nvidia-smi, and as a usage report.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let text = String::from_utf8_lossy(text);
    let _ = gpuprobe_report::plot::try_texts(&text, std::path::Path::new("/dev/shm/gpuprobe-fuzz.svg"));
});
