//! Recordings: write speed, and cost of the analyses per event. `cargo bench --package gpuprobe-benches --bench recording`
//! measures whole files of ten million events, and memory.

use std::cell::LazyCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use gpuprobe_analysis::Analysis;
use gpuprobe_cuda::Modes;
use gpuprobe_os::progress::SharedProgress;
use gpuprobe_recording::{Facts, Player};
use gpuprobe_views::report;
use gpuprobe_views::report::{AnalysisFormat, ReportConfig};
use rusqlite::Connection;
use tempfile::TempDir;
use zerocopy::IntoBytes;

use super::{calls, event_number};

fn record(path: &Path, events: u64) -> Duration {
    let records: Vec<_> = (0..events).map(calls::raw).collect();
    let modes = Modes {
        memleak: true,
        ..Modes::default()
    };
    let begun = Instant::now();
    let mut recorder = Player::recording(path, Facts::now(modes)).unwrap();
    for record in &records {
        recorder.record(record.as_bytes());
    }
    recorder.finish();
    begun.elapsed()
}

/// Checks that every call has a row, with a row of its memory event, and that nothing was dropped.
fn check(path: &Path, events: u64) {
    let connection = Connection::open(path).unwrap();
    let one = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    for table in [
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "CUDA_GPU_MEMORY_USAGE_EVENTS",
    ] {
        let rows = one(&format!("SELECT count(*) FROM {table}")).unwrap();
        assert_eq!(rows, events.cast_signed(), "{table}");
    }
    let lost = one("SELECT count FROM GPUPROBE_LOST WHERE what = 'recording'").unwrap();
    assert_eq!(lost, 0);
}

pub(crate) fn writing(criterion: &mut Criterion) {
    let events = event_number();
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("written.sqlite");
    let mut group = criterion.benchmark_group("recording");
    group.sample_size(10);
    // Rows per call.
    group.throughput(Throughput::Elements(events * 2));
    group.bench_function("rows", |bencher| {
        bencher.iter_custom(|times| {
            let one = |_| {
                let took = record(&path, events);
                check(&path, events);
                fs::remove_file(&path).unwrap();
                took
            };
            (0..times).map(one).sum()
        });
    });
    group.finish();
}

fn config(file: &Path, analysis: Analysis, output: PathBuf) -> ReportConfig {
    ReportConfig {
        file: file.to_owned(),
        analysis,
        format: AnalysisFormat::Tsv,
        output: Some(output),
        ..ReportConfig::default()
    }
}

pub(crate) fn analysing(criterion: &mut Criterion) {
    let events = event_number();
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("analysed.sqlite");
    // Setup is skipped if the filter excludes it.
    let recorded = LazyCell::new(|| record(&path, events));
    let mut group = criterion.benchmark_group("analyses");
    group.sample_size(10);
    group.throughput(Throughput::Elements(events));
    // A heading, and a line per event: at most 4096 bytes are live, and none at the end.
    let cases = [
        ("watermark", Analysis::Watermark, 2),
        ("usage", Analysis::Usage, events as usize + 1),
        ("leakage", Analysis::Leakage, 1),
    ];
    for (name, question, lines) in cases {
        let output = folder.path().join(name);
        let config = config(&path, question, output.clone());
        let progress: SharedProgress = Arc::new(());
        group.bench_function(name, |bencher| {
            LazyCell::force(&recorded);
            bencher.iter(|| report::run(&config, &progress).unwrap());
            let text = fs::read_to_string(&output).unwrap();
            assert_eq!(text.lines().count(), lines, "{name}");
        });
    }
    group.finish();
}
