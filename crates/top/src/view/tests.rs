//! The view at three sizes, compared with the JSON of the report that it shows.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use serde_json::Value;

use super::*;
use crate::feed::{PlaybackState, Request};
use crate::keys::Key;
use gpuprobe_cuda::{FUNCTIONS, Modes};
use gpuprobe_engine::State;
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::event::{Call, Event, Task};
use gpuprobe_model::identity::Identity;
use gpuprobe_model::stack::{CallStack, Frame, Language, Location, Symbolize, bare_frame};
use gpuprobe_model::text::size;
use gpuprobe_model::{GpuMemory, GpuUsage, Lost};
use gpuprobe_report::{
    self as report, GroupBy, History, Options, Report, ReportSources, View as Listing,
};

const SECOND: u64 = 1_000_000_000;
const SIZES: [(u16, u16); 3] = [(80, 24), (40, 10), (250, 80)];

/// Python lines, with their source.
struct Lines;

impl Symbolize for Lines {
    fn frames(&self, _: u32, location: &Location, _: bool) -> Vec<Frame> {
        vec![Frame {
            file: Some("/home/ada/train.py".into()),
            line: u32::try_from(location.address).ok(),
            source: Some("loss.backward()".into()),
            language: Language::Python,
            function: "step".into(),
            module: String::new(),
            ..bare_frame(location)
        }]
    }
}

fn task(pid: u32, comm: &str) -> Task {
    Task {
        pid,
        tid: pid,
        uid: 1000,
        process: pid,
        from_birth: true,
        inner_pid: pid,
        cgroup: 0,
        time_ns: 1,
        comm: comm.into(),
    }
}

fn allocation(pid: u32, symbol: &str, time_ns: u64, size_bytes: u64, stack: u64) -> Event {
    let row = FUNCTIONS.iter().position(|f| f.symbol == symbol).unwrap();
    Event::Call(Call {
        row: u16::try_from(row).unwrap(),
        function: &FUNCTIONS[row],
        result: 0,
        pid,
        tid: pid,
        start_ns: time_ns,
        end_ns: time_ns,
        address: time_ns << 20,
        size_bytes,
        device: Some(0),
        context: 0,
        captured: false,
        stack,
        detail: None,
    })
}

/// A run of two processes, with so many reports until now.
struct Scene {
    state: State,
    history: History,
    now_ns: u64,
}

impl Scene {
    fn new() -> Self {
        let mut scene = Self {
            state: State::default(),
            history: History::default(),
            now_ns: 10 * SECOND,
        };
        for (pid, comm) in [(10, "python3"), (20, "evil\u{1b}[2J")] {
            scene.apply(&Event::Process(task(pid, comm)));
            for stack in 1..=3 {
                let location = |address| Location {
                    address,
                    module: None,
                    offset: address,
                };
                let stack_of = CallStack {
                    locations: vec![location(1), location(stack * 10)],
                    is_complete: true,
                };
                let ledger = &mut scene.state.ledger;
                ledger.learn_stack(pid, stack, Rc::new(stack_of));
            }
        }
        for number in 1..=5 {
            scene.apply(&allocation(10, "cudaMalloc", number, number << 20, 1));
        }
        scene.apply(&allocation(10, "cudaMallocManaged", 6, 7 << 20, 2));
        scene.apply(&allocation(20, "cudaMalloc", 7, 9 << 30, 3));
        scene
    }

    fn apply(&mut self, event: &Event) {
        let identity = |task: &Task| Identity {
            user: Some("ada".into()),
            command: Some(format!("/usr/bin/{} /home/ada/train.py", task.comm)),
            ..Identity::default()
        };
        self.state.ledger.apply(event, identity);
    }

    /// The report of now; the next one is a second later.
    fn update(&mut self, detail: Option<ProcessDetail>) -> Update {
        let options = Options {
            modes: Modes {
                memleak: true,
                cudatrace: true,
                bandwidth_util: true,
                activity: false,
            },
            top: Some(20),
            view: Listing {
                group: Some(GroupBy::Stack),
                ..Listing::default()
            },
            allocations: false,
            explains: false,
            stacks: true,
            host_wide: true,
            now_ns: self.now_ns,
            is_final: false,
            since_last: Duration::from_secs(1),
            since_start: Duration::from_nanos(self.now_ns),
            link: None,
            detail,
        };
        let usage = GpuUsage {
            processes: HashMap::from([(10, vec![(0, 1 << 30)]), (20, vec![(0, 10 << 30)])]),
            gpus: vec![GpuMemory {
                index: 0,
                uuid: "GPU-0".into(),
                name: "NVIDIA H200".into(),
                total_bytes: Some(141 << 30),
                used_bytes: Some(11 << 30),
                busy_percent: Some(87),
            }],
            ..GpuUsage::default()
        };
        let clock = WallClock::now();
        let sources = ReportSources {
            clock: Some(&clock),
            usage: Some(&usage),
            lost_by_user: &[],
            history: Some(&self.history),
            launches: None,
            symbols: &Lines,
        };
        let report = report::build(&self.state, Lost::default(), &options, sources);
        self.history.note(&self.state.ledger, &report, self.now_ns);
        self.state.mark_reported();
        let now_ns = self.now_ns;
        self.now_ns += SECOND;
        Update {
            report: Arc::new(report),
            now_ns,
            detail,
            parents: Arc::new(HashMap::from([(20, 10)])),
            playing: None,
        }
    }
}

fn view() -> TopView {
    TopView::new(ScreenConfig {
        colored: false,
        is_replay: false,
    })
}

/// A view of a scene at its first report.
fn opened() -> (Scene, TopView) {
    let (mut scene, mut view) = (Scene::new(), view());
    view.update(scene.update(None));
    (scene, view)
}

fn drawn(view: &mut TopView, (width, height): (u16, u16)) -> Vec<String> {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    view.draw(&mut buffer);
    let rows = buffer.content().chunks(usize::from(width));
    let text = |row: &[ratatui_core::buffer::Cell]| {
        row.iter().map(ratatui_core::buffer::Cell::symbol).collect()
    };
    rows.map(|row| {
        let text: String = text(row);
        text.trim_end().to_owned()
    })
    .collect()
}

fn keys(view: &mut TopView, keys: &[Key]) -> Vec<Request> {
    keys.iter().flat_map(|key| view.key(*key)).collect()
}

fn json(report: &Report) -> Value {
    serde_json::to_value(report).unwrap()
}

/// The row with `text`, as words.
fn row<'a>(screen: &'a [String], text: &str) -> Vec<&'a str> {
    let found = screen.iter().find(|line| line.contains(text));
    found
        .unwrap_or_else(|| panic!("no {text} in {screen:#?}"))
        .split_whitespace()
        .collect()
}

/// Presses enter, and gives the view the report with what it asks for.
fn enter(scene: &mut Scene, view: &mut TopView) -> Update {
    let detail = keys(view, &[Key::Enter])
        .into_iter()
        .find_map(|request| match request {
            Request::Detail(detail) => Some(detail),
            _ => None,
        });
    let update = scene.update(detail.flatten());
    view.update(update.clone());
    update
}

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
        words.starts_with("10 ada python3 train.py 22.00 MiB 0.0 ddddddmmmm"),
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
        let grid = view.grid().unwrap();
        let ordered = view.ordered(&grid);
        ordered.iter().map(|&row| grid.rows[row].id).collect()
    };
    drawn(&mut view, at);
    assert_eq!(pids(&mut view), [20, 10]);
    assert_eq!(view.selected_pid(), Some(20));
    keys(&mut view, &[Key::Char('j')]);
    assert_eq!(view.selected_pid(), Some(10));
    // The selection stays with its process.
    keys(&mut view, &[Key::Char('i')]);
    assert_eq!(pids(&mut view), [10, 20]);
    assert_eq!(view.selected_pid(), Some(10));
    keys(&mut view, &[Key::Char('i'), Key::Char('<'), Key::Char('<')]);
    let screen = drawn(&mut view, at);
    assert!(
        screen.iter().any(|line| line.contains("USER▼")),
        "{screen:#?}"
    );
    keys(&mut view, &[Key::Char('/')]);
    "evil".chars().for_each(|c| drop(view.key(Key::Char(c))));
    assert_eq!(pids(&mut view), [20]);
    assert!(drawn(&mut view, at)[23].starts_with("/evil_"));
    keys(&mut view, &[Key::Enter]);
    assert_eq!(view.selected_pid(), Some(20));
    keys(&mut view, &[Key::Esc, Key::Char('t')]);
    assert_eq!(pids(&mut view), [10, 20]);
    keys(&mut view, &[Key::Char('/'), Key::Char('~')]);
    assert!(
        drawn(&mut view, at)
            .iter()
            .any(|line| line.contains("no row contains"))
    );
}

#[test]
fn a_process_has_its_call_sites_and_these_their_allocations() {
    let (mut scene, mut view) = opened();
    keys(&mut view, &[Key::Down]);
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
            let label = site["label"].as_str().unwrap();
            let (first, last) = label.split_at(10);
            assert!(found.contains(first), "{at:?}: {found}");
            assert!(at.0 < 250 || found.ends_with(last), "{at:?}: {found}");
        }
    }
    let update = enter(&mut scene, &mut view);
    assert!(update.detail.unwrap().allocations);
    let report = json(&update.report);
    let threads = &report["memleak"]["processes"][1]["threads"];
    let screen = drawn(&mut view, (80, 40));
    assert!(
        screen.iter().any(|line| line.contains("loss.backward()")),
        "{screen:#?}"
    );
    let shown = screen.iter().filter(|line| line.contains("0x")).count();
    let listed = threads[0]["allocations"].as_array().unwrap();
    let here = listed.iter().filter(|one| one["kind"] == "device");
    assert_eq!(shown, here.count());
    assert!(
        screen
            .iter()
            .any(|line| line.starts_with("ages of 5 allocations")),
        "{screen:#?}"
    );
    assert!(
        screen
            .iter()
            .any(|line| line.starts_with("    < 1m        5 ###")),
        "{screen:#?}"
    );
    // Back at the table, details are of no use any more.
    let requests = keys(&mut view, &[Key::Esc, Key::Esc]);
    assert_eq!(requests.last(), Some(&Request::Detail(None)));
}

#[test]
fn a_process_that_ends_stays_on_the_screen() {
    let (mut scene, mut view) = opened();
    enter(&mut scene, &mut view);
    scene.apply(&Event::Exit(task(20, "evil")));
    for _ in 0..3 {
        let detail = view.detail();
        view.update(scene.update(detail));
    }
    let screen = drawn(&mut view, (80, 24));
    assert!(
        screen.iter().any(|line| line.contains("(ended)")),
        "{screen:#?}"
    );
    assert!(
        screen.iter().any(|line| line.contains("9.00 GiB")),
        "{screen:#?}"
    );
    keys(&mut view, &[Key::Esc]);
    assert!(
        drawn(&mut view, (80, 24))
            .iter()
            .any(|line| line.contains("python3"))
    );
}

#[test]
fn a_paused_view_stays_and_goes_on_with_the_latest() {
    let (mut scene, mut view) = opened();
    let before = drawn(&mut view, (80, 24));
    keys(&mut view, &[Key::Char(' ')]);
    scene.apply(&allocation(10, "cudaMalloc", 100, 64 << 30, 1));
    view.update(scene.update(None));
    let paused = drawn(&mut view, (80, 24));
    assert!(paused[0].contains("PAUSED"), "{}", paused[0]);
    assert_eq!(before[3..23], paused[3..23]);
    keys(&mut view, &[Key::Char(' ')]);
    let screen = drawn(&mut view, (80, 24));
    assert!(row(&screen, " 10 ").contains(&"64.02"), "{screen:#?}");
}

#[test]
fn a_message_is_shown_for_a_while() {
    let (mut scene, mut view) = opened();
    view.tell("flame graph in a\u{1b}.svg".into());
    let shown = "flame graph in a\\u{1b}.svg";
    for second in 0..12 {
        let is_shown = drawn(&mut view, (80, 24))[23] == shown;
        assert_eq!(is_shown, second <= 10, "{second}");
        view.update(scene.update(None));
    }
}

#[test]
fn keys_ask_for_what_the_session_does() {
    let (_, mut view) = opened();
    let asked = keys(
        &mut view,
        &"efrq".chars().map(Key::Char).collect::<Vec<_>>(),
    );
    let requests = [
        Request::Explain(20),
        Request::Flamegraph(20),
        Request::Record(20),
        Request::Quit,
    ];
    assert_eq!(asked, requests);
    // Of a recording, other keys have a meaning.
    let mut view = TopView::new(ScreenConfig {
        colored: false,
        is_replay: true,
    });
    let mut update = Scene::new().update(None);
    update.playing = Some(PlaybackState {
        file: "run.sqlite".into(),
        at_ns: 42 * SECOND,
        length_ns: 310 * SECOND,
        speed: 10.0,
        is_stopped: true,
    });
    view.update(update);
    assert!(drawn(&mut view, (80, 24))[0].contains("42s of 5m10s, 10x, stopped"));
    let asked = keys(
        &mut view,
        &"r []{}+-".chars().map(Key::Char).collect::<Vec<_>>(),
    );
    let seeks = [-10.0, 10.0, -60.0, 60.0].map(Request::Seek);
    let faster = [2.0, 0.5].map(Request::Faster);
    let all = [&[Request::Stop], &seeks[..], &faster[..]].concat();
    assert_eq!(asked, all);
}

#[test]
fn the_help_names_every_key_and_scrolls() {
    let (_, mut view) = opened();
    keys(&mut view, &[Key::Char('?')]);
    let text = drawn(&mut view, (120, 60)).join("\n");
    for key in [
        "tab", "/", "< >", "space", "  r ", "  f ", "  e ", "  t ", "ctrl-c",
    ] {
        assert!(text.contains(key), "{key}: {text}");
    }
    let first = drawn(&mut view, (40, 10));
    keys(&mut view, &[Key::PageDown]);
    assert_ne!(drawn(&mut view, (40, 10)), first);
    keys(&mut view, &[Key::End]);
    let last = drawn(&mut view, (40, 10));
    assert!(last[8].contains("minutes"), "{last:#?}");
    keys(&mut view, &[Key::Esc]);
    assert!(
        drawn(&mut view, (80, 24))
            .iter()
            .any(|line| line.contains("COMMAND"))
    );
}
