//! Plots: the contents of their SVG.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Folder, gpuprobe, report};

fn plot(output: &Path, arguments: &[&str]) -> String {
    let mut words = vec!["plot", "-o", output.to_str().unwrap()];
    words.extend(arguments);
    let done = gpuprobe(&words);
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success(), "{said}");
    said
}

fn words(svg: &Path) -> String {
    let text = fs::read_to_string(svg).unwrap();
    let text = text
        .split('>')
        .skip(1)
        .map(|part| part.split('<').next().unwrap().trim());
    text.filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join("|")
}

#[test]
fn plot_of_the_real_export() {
    let folder = Folder::new();
    let file = folder.real_export();
    let svg = folder.path("chart.svg");
    plot(&svg, &[file.to_str().unwrap(), "--title", "On an H200"]);
    let words = words(&svg);
    for wanted in [
        "On an H200",
        // A site that is never a pixel high has no legend entry.
        "|device|managed|async|pitched|GPU memory (MiB)|",
        "never freed: 24.00 MiB",
        "peak 25.00 MiB at 17.017 ms",
        "GPU memory (MiB)",
        "time from the first event (ms)",
    ] {
        assert!(words.contains(wanted), "{wanted} in {words}");
    }
    for hidden in ["pinned", "array"] {
        assert!(!words.contains(hidden), "{hidden} in {words}");
    }
    plot(&svg, &[file.to_str().unwrap()]);
    let titled = self::words(&svg);
    let title = "./all_shared all, NVIDIA H200, 2026-11-20 20:34";
    assert!(titled.contains(title), "{titled}");
    plot(
        &svg,
        &[file.to_str().unwrap(), "--by", "site", "--top", "1"],
    );
    assert!(self::words(&svg).contains("|#0 all_shared: main|elsewhere|"));
    let png = folder.path("chart.png");
    plot(&png, &[file.to_str().unwrap()]);
    assert!(fs::read(&png).unwrap().starts_with(b"\x89PNG"));
}

fn smi(folder: &Folder, second: u32) -> PathBuf {
    let path = folder.path("smi.txt");
    let sample = |n: u32| {
        format!(
            "2026/11/20 20:34:{second:02}.{:03}, {} MiB\n",
            120 + n,
            500 + n
        )
    };
    fs::write(&path, (0..30).map(sample).collect::<String>()).unwrap();
    path
}

#[test]
fn plot_has_nvml_samples_above_the_sites() {
    let folder = Folder::new();
    let file = folder.real_export();
    let svg = folder.path("chart.svg");
    let arguments =
        |smi: &Path| [file.to_str().unwrap(), "--smi", smi.to_str().unwrap()].map(str::to_owned);
    let run = |second| {
        let arguments = arguments(&smi(&folder, second));
        plot(&svg, &arguments.each_ref().map(String::as_str))
    };
    assert_eq!(run(23), "");
    assert!(words(&svg).contains("nvidia-smi, GPU 0"));
    assert!(run(45).contains("of another time"));
}

#[test]
fn plot_up_to_an_earlier_time() {
    let folder = Folder::new();
    let file = folder.real_export();
    let usage = folder.path("usage.txt");
    for format in ["text", "tsv", "csv", "json"] {
        fs::write(
            &usage,
            report(&file, &["--analysis", "usage", "--format", format]),
        )
        .unwrap();
        let svg = folder.path("chart.svg");
        plot(&svg, &["--usage", usage.to_str().unwrap()]);
        let words = words(&svg);
        assert!(words.contains("peak 25.00 MiB at 17.017 ms"), "{words}");
        assert!(
            words.contains("with call stack|without call stack"),
            "{words}"
        );
    }
}

#[test]
fn lines_of_python_have_an_area() {
    let folder = Folder::new();
    let file = folder.scene("python");
    let svg = folder.path("chart.svg");
    plot(
        &svg,
        &[file.to_str().unwrap(), "--by", "site", "--top", "2"],
    );
    let text = words(&svg);
    // Three native stacks, by their number in reports.
    assert!(text.contains("|#0 train.py:41 training_step|"), "{text}");
    assert!(text.contains("|#4 tree.py:10 "), "{text}");
}

#[test]
fn reserved_bytes_are_above_tensors() {
    let folder = Folder::new();
    let file = folder.scene("tensors");
    let svg = folder.path("chart.svg");
    plot(&svg, &[file.to_str().unwrap(), "--by", "tensor-site"]);
    let text = words(&svg);
    for part in ["reserved by PyTorch", "peak 384.50 MiB", "T0 "] {
        assert!(text.contains(part), "{part} in {text}");
    }
}
