//! The text of a live run; `tests/recordings` has all others. All reports in JSON are checked by their schema.

use chrono::{DateTime, Local};

use crate::harness::{Backend, Setup};

#[test]
fn root_text_is_laid_out_as_documented() {
    let before = Local::now().timestamp();
    let setup = Setup::workload(Backend::Shared).format("text");
    let run = setup.args(["--top", "2", "--group", "thread"]).run(
        "alloc 1048576 4; alloc 20971520; alloc 100; thread loader; @loader alloc 1536; free 0",
    );
    let (pid, text) = (run.pid, run.text());
    // The first line has the time, with an offset and whole seconds.
    let (title, time) = text.lines().next().unwrap().rsplit_once("  ").unwrap();
    assert!(
        title.contains(&format!("  pid {pid} root  (ended)")),
        "{title}"
    );
    assert_eq!(time.len(), "2026-11-25T15:45:33+07:00".len(), "{time}");
    let time = DateTime::parse_from_rfc3339(time).expect("a time");
    assert!((before..=Local::now().timestamp()).contains(&time.timestamp()));
    assert_eq!(*time.offset(), *Local::now().offset());
    // Address, size, GPU, kind; thread.
    let first: Vec<_> = run.replies[0].split(' ').collect();
    let (large, tid, small) = (&run.replies[1], &run.replies[3], &run.replies[4]);
    for (address, size, thread) in [
        (large.as_str(), "20.00 MiB", format!("workload:{pid}")),
        (first[1], "1.00 MiB", format!("workload:{pid}")),
        (small.as_str(), "1.50 KiB", format!("loader:{tid}")),
    ] {
        let row = text
            .lines()
            .find(|line| line.trim_start().starts_with(address));
        let row: Vec<_> = row.expect("a row").split_whitespace().collect();
        assert_eq!(row[1..5].join(" "), format!("{size} 0 device"), "{text}");
        assert_eq!(row.last(), Some(&&*thread), "{text}");
    }
    for line in [
        "... and 3 more (--top all)",
        "calls: 7 cudaMalloc, 1 free",
        "TOTAL LEAKED: 23.00 MiB",
        "24118884 bytes leaked from 6 cuda memory allocation(s)",
    ] {
        assert!(text.lines().any(|one| one == line), "no '{line}' in {text}");
    }
}
