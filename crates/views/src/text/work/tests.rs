use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::ReportFormat;
use gpuprobe_cuda::Modes;
use gpuprobe_engine::State;
use gpuprobe_model::Lost;
use gpuprobe_model::activity::{Activity, ActivityBatch, ActivityRecord};
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::event::Event;
use gpuprobe_model::stack::NoSymbols;
use gpuprobe_os::terminal::Layout;
use gpuprobe_report::{Options, View};
use gpuprobe_wire as wire;

fn batch(records: impl IntoIterator<Item = (ActivityRecord, &'static str)>) -> Event {
    let activity = |(record, name): (ActivityRecord, &str)| Activity {
        pid: 7,
        record,
        name: (!name.is_empty()).then(|| Arc::from(name)),
        qualifier: None,
    };
    Event::Activity(ActivityBatch {
        pid: 7,
        process: 7,
        cupti_version: 130_001,
        is_last: true,
        activities: records.into_iter().map(activity).collect(),
    })
}

fn kernel(start_ns: u64, end_ns: u64) -> ActivityRecord {
    ActivityRecord::Kernel(wire::Kernel {
        start_ns,
        end_ns,
        ..wire::Kernel::default()
    })
}

#[test]
fn sums_for_people() {
    let copy = wire::Memcpy {
        start_ns: 5_000,
        end_ns: 7_000,
        size_bytes: 20_000,
        copy_kind: 1,
        source_kind: 2,
        destination_kind: 3,
        flags: 1,
        ..wire::Memcpy::default()
    };
    let call = wire::Api {
        start_ns: 1_000,
        end_ns: 1_500,
        domain: 2,
        result: 1,
        ..wire::Api::default()
    };
    let memory = wire::Memory {
        time_ns: 900,
        operation: 1,
        memory_kind: 3,
        size_bytes: 1 << 20,
        ..wire::Memory::default()
    };
    let mut state = State::default();
    // The second kernel comes first, and the names are hostile.
    state.activity.apply(&batch([
        (kernel(3_000, 4_000), "_Z1kPf"),
        (kernel(1_000, 4_000), "evil\u{1b}[2J"),
        (ActivityRecord::Memcpy(copy), ""),
        (ActivityRecord::Api(call), "cudaMalloc_v3020"),
        (ActivityRecord::Memory(memory), ""),
    ]));
    let options = Options {
        modes: Modes {
            activity: true,
            ..Modes::default()
        },
        top: Some(10),
        view: View::default(),
        stacks: false,
        host_wide: false,
        now_ns: 10_900,
        allocations: true,
        explains: false,
        is_final: true,
        since_last: Duration::from_nanos(10_000),
        since_start: Duration::from_nanos(10_000),
        link: None,
        detail: None,
        only_detail: false,
    };
    let clock = WallClock::now();
    let sources = gpuprobe_report::ReportSources::of_file(Some(&clock), &NoSymbols);
    let report = gpuprobe_report::build(&state, Lost::default(), &options, sources);
    let mut out = Vec::new();
    ReportFormat::Text
        .writer(false)
        .write(&report, &mut out)
        .unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.starts_with("?  pid 7  5 GPU records  "), "{text}");
    for line in [
        "  GPU 0  kernels 30.0 %, copies 20.0 %, idle 50.0 % of 10.00 us",
        "    idle 1 time, 1.00 us, at most 1.00 us",
        "  memory: device allocation 1 (1.00 MiB)",
        "lost: nothing",
    ] {
        assert!(text.lines().any(|one| one == line), "no '{line}' in {text}");
    }
    // The longest first; names without versions.
    for (name, cells) in [
        ("evil\\u{1b}[2J", ["1", "75.0"]),
        ("k", ["1", "25.0"]),
        ("cudaMalloc", ["runtime", "1"]),
    ] {
        let row = text
            .lines()
            .find(|line| line.ends_with(&format!("  {name}")));
        let row: Vec<_> = row.unwrap().split_whitespace().collect();
        assert_eq!(row[..2], cells, "{text}");
    }
    let copies = text.lines().find(|line| line.contains("pinned  "));
    assert!(
        copies.unwrap().contains("1  19.53 KiB  10.0  10.0"),
        "{text}"
    );
    // In a narrow line, what is left out are columns.
    let layout = Layout {
        columns: Some(80),
        ..Layout::default()
    };
    let activity = report.activity.unwrap();
    let mut page = Page {
        layout,
        ..Page::default()
    };
    write_activity(&activity, &mut page);
    let narrow = page.text;
    assert!(
        narrow.lines().all(|line| line.chars().count() <= 80),
        "{narrow}"
    );
    assert!(narrow.contains("pinned  "), "{narrow}");
}
