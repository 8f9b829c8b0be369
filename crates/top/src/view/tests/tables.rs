//! Tables have the figures of the report.

use super::*;
use gpuprobe_report::label::shortened;

#[test]
fn processes_have_the_figures_of_the_json() {
    let (_, mut view) = opened();
    let report = json(&view.shown.as_ref().unwrap().report);
    let memleak = &report["memleak"];
    for at in SIZES {
        let screen = drawn(&mut view, at);
        assert_eq!(screen.len(), usize::from(at.1));
        for process in memleak["processes"].as_array().unwrap() {
            let pid = process["pid"].to_string();
            let words = row(&screen, &format!(" {pid} ")).join(" ");
            let held = size(process["live_bytes"].as_u64().unwrap());
            assert!(words.contains(&held), "{at:?}: {words} without {held}");
        }
        let gpu = row(&screen, "GPU 0").join(" ");
        let used = memleak["gpus"][0]["used_bytes"].as_u64().unwrap();
        let total = memleak["gpus"][0]["total_bytes"].as_u64().unwrap();
        let used = format!("{} of {}", size(used), size(total));
        assert!(gpu.contains(&used), "{at:?}: {gpu} without {used}");
    }
    let screen = drawn(&mut view, (250, 80));
    let live = memleak["live_bytes"].as_u64().unwrap();
    assert!(
        screen[0].contains(&format!("{} held", size(live))),
        "{}",
        screen[0]
    );
    let tracked = size(9216 << 20 | 22 << 20);
    let other = size((11 << 30) - (9216 << 20 | 22 << 20));
    let gpu = row(&screen, "GPU 0").join(" ");
    for part in [
        format!("tracked {tracked}"),
        format!("other {other}"),
        "busy 87 %".into(),
    ] {
        assert!(gpu.contains(&part), "{gpu} without {part}");
    }
    // 9 of 141 GiB; what NVML says of the process.
    let words = row(&screen, " 20 ");
    assert!(
        words.contains(&"6.4") && words.contains(&"10.00"),
        "{words:?}"
    );
    let words = row(&screen, " 10 ").join(" ");
    assert!(
        words.starts_with("10 ada 22.00 MiB 0.0 ddddddmmmm") && words.contains("python3 train.py"),
        "{words}"
    );
}

#[test]
fn every_row_fits_and_names_send_no_control_characters() {
    let (mut scene, mut view) = opened();
    for pages in 0..3 {
        for at in SIZES {
            for line in drawn(&mut view, at) {
                assert!(!line.contains(char::is_control), "{line}");
                assert!(line.chars().count() <= usize::from(at.0), "{line}");
            }
        }
        if pages < 2 {
            enter(&mut scene, &mut view);
        }
    }
}

#[test]
fn rows_are_selected_sorted_filtered_and_below_their_parents() {
    let (_, mut view) = opened();
    let at = (120, 24);
    let pids = |view: &mut TopView| -> Vec<u64> {
        let rows = view.table().unwrap().rows;
        rows.iter().map(|row| row.id).collect()
    };
    drawn(&mut view, at);
    assert_eq!(pids(&mut view), [20, 10]);
    assert_eq!(view.selected_pid(), Some(20));
    letters(&mut view, "j");
    assert_eq!(view.selected_pid(), Some(10));
    // The selection stays with its process.
    letters(&mut view, "i");
    assert_eq!(pids(&mut view), [10, 20]);
    assert_eq!(view.selected_pid(), Some(10));
    letters(&mut view, "i<");
    let screen = drawn(&mut view, at);
    assert!(
        screen.iter().any(|line| line.contains("USER▼")),
        "{screen:#?}"
    );
    letters(&mut view, "/evil");
    assert_eq!(pids(&mut view), [20]);
    assert!(drawn(&mut view, at)[23].starts_with("/evil_"));
    keys(&mut view, &[KeyCode::Enter]);
    assert_eq!(view.selected_pid(), Some(20));
    keys(&mut view, &[KeyCode::Esc, KeyCode::Char('t')]);
    assert_eq!(pids(&mut view), [10, 20]);
    letters(&mut view, "/~");
    assert!(
        drawn(&mut view, at)
            .iter()
            .any(|line| line.contains("no row contains"))
    );
}

#[test]
fn a_process_has_its_call_sites_and_these_their_allocations() {
    let (mut scene, mut view) = opened();
    keys(&mut view, &[KeyCode::Down]);
    let update = enter(&mut scene, &mut view);
    assert_eq!(update.detail.unwrap().pid, 10);
    let report = json(&update.report);
    let process = &report["memleak"]["processes"][1];
    assert_eq!(process["pid"], 10);
    for at in SIZES {
        let screen = drawn(&mut view, at);
        for site in process["sites"].as_array().unwrap() {
            let held = size(site["live_bytes"].as_u64().unwrap());
            let is_it = |line: &&String| line.trim_start().starts_with(&held);
            let found = row(&screen, screen.iter().find(is_it).unwrap()).join(" ");
            let count = &site["live_allocations"];
            let begin = format!("{held} {count} ");
            assert!(found.starts_with(&begin), "{at:?}: {found}");
            // Where there is no room, its middle is left out.
            let label = shortened(site["label"].as_str().unwrap());
            let (first, last) = label.split_at(5);
            assert!(found.contains(first), "{at:?}: {found}");
            assert!(at.0 < 250 || found.ends_with(last), "{at:?}: {found}");
        }
    }
    let update = enter(&mut scene, &mut view);
    assert!(update.detail.unwrap().allocations);
    let report = json(&update.report);
    let threads = &report["memleak"]["processes"][1]["threads"];
    let screen = drawn(&mut view, (80, 40));
    let place = |text: &str| screen.iter().position(|line| line.contains(text)).unwrap();
    let places = ["loss.backward()", "0x", "the whole stack"].map(place);
    assert!(places.is_sorted(), "{screen:#?}");
    let shown = screen.iter().filter(|line| line.contains("0x")).count();
    let listed = threads[0]["allocations"].as_array().unwrap();
    let here = listed.iter().filter(|one| one["kind"] == "device");
    assert_eq!(shown, here.count());
    // Back at the table, details are of no use any more.
    let requests = keys(&mut view, &[KeyCode::Esc, KeyCode::Esc]);
    assert_eq!(requests.last(), Some(&Request::Detail(None)));
}

#[test]
fn reports_have_sums_of_all_processes_and_call_sites_of_the_one_that_is_open() {
    let mut scene = Scene::new();
    let detail = Some(ProcessDetail {
        pid: 10,
        top: 500,
        allocations: false,
    });
    let sites = |report: &Value| -> Vec<(u64, Value)> {
        let processes = report["memleak"]["processes"].as_array().unwrap().iter();
        let told = processes.map(|one| (one["pid"].as_u64().unwrap(), one["sites"].clone()));
        told.collect()
    };
    let sums = json(&scene.update(None).report);
    assert_eq!(sites(&sums), [(20, Value::Null), (10, Value::Null)]);
    let first = json(&scene.update(detail).report);
    let [(20, Value::Null), (10, Value::Array(listed))] = &sites(&first)[..] else {
        panic!("{first}");
    };
    // The report before did not list them.
    assert!(listed.iter().all(|site| site["change_bytes"].is_null()));
    scene.apply(&allocation(10, "cudaMalloc", 100, 5, 1));
    let second = json(&scene.update(detail).report);
    let changes = &sites(&second)[1].1;
    let changes = changes.as_array().unwrap().iter();
    let mut changes: Vec<_> = changes.map(|site| site["change_bytes"].as_i64()).collect();
    changes.sort_unstable();
    assert_eq!(changes, [Some(0), Some(5)]);
    // The sums are those of a report of everything.
    scene.only_detail = false;
    let whole = json(&scene.update(None).report);
    for key in [
        "live_bytes",
        "kinds",
        "devices",
        "peak_bytes",
        "alloc_calls",
    ] {
        assert_eq!(whole["memleak"][key], second["memleak"][key], "{key}");
    }
}

#[test]
fn verdicts_follow_within_seconds_and_are_those_of_the_call_sites() {
    let (mut scene, mut view) = opened();
    for _ in 0..120 {
        let now_ns = scene.now_ns;
        scene.apply(&allocation(10, "cudaMalloc", now_ns, 1 << 20, 1));
        view.update(scene.update(None));
    }
    let words = |view: &mut TopView| row(&drawn(view, (120, 24)), " 10 ").join(" ");
    assert!(words(&mut view).contains("growing"), "{}", words(&mut view));
    let shown = view.shown.as_ref().unwrap().verdicts[&10].clone();
    scene.only_detail = false;
    let report = scene.update(None).report;
    let processes = &report.memleak.as_ref().unwrap().processes;
    let process = processes.iter().find(|one| one.who.pid == 10).unwrap();
    let sites = process.listed().iter();
    let judged = sites.filter_map(|site| Some(site.judgement.as_ref()?.shown()));
    assert_eq!(Some(shown.verdict), judged.min());
    let has = |site: &gpuprobe_report::memleak::SiteReport| site.label.starts_with(&shown.label);
    assert!(process.listed().iter().any(has), "{shown:?}");
    // Of ten reports in ten seconds, two judge anew.
    let mut last = scene.update(None).verdicts;
    let judged = (0..10).filter(|_| {
        let before = std::mem::replace(&mut last, scene.update(None).verdicts);
        !Arc::ptr_eq(&before, &last)
    });
    assert_eq!(judged.count(), 2);
}

#[test]
fn copies_have_their_call_sites_with_advice() {
    let (mut scene, mut view) = opened();
    let row = FUNCTIONS
        .iter()
        .position(|one| one.symbol == "cuMemcpyDtoH_v2");
    let row = row.unwrap();
    for step in 0..20 {
        let copy = Copy {
            row: u16::try_from(row).unwrap(),
            function: &FUNCTIONS[row],
            result: 0,
            pid: 20,
            tid: 20,
            start_ns: step * SECOND,
            end_ns: step * SECOND + 1500,
            bytes: 4,
            destination: 0,
            source: 0,
            kind: 0,
            destination_type: 0,
            captured: false,
            stack: 3,
        };
        let ledger = &scene.state.ledger;
        let transfers = &mut scene.state.transfers;
        transfers.apply(&Event::Copy(copy), ledger, |_, _| None);
    }
    enter(&mut scene, &mut view);
    keys(&mut view, &[KeyCode::Tab; 4]);
    let screen = drawn(&mut view, (250, 80));
    let words = super::row(&screen, "train.py:1 ").join(" ");
    assert!(
        words.starts_with("20 80 B D2H 20 30.00 us each waits"),
        "{words}"
    );
    // Others have no call sites in this report.
    let report = scene.update(None).report;
    assert!(report.bandwidth_util.as_ref().unwrap().sites.is_empty());
}
