//! The view at three sizes, compared with the JSON of the report that it shows.

mod keys_and_state;
mod tables;

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::crossterm::event::{Event as Input, KeyCode};
use serde_json::Value;

use super::*;
use crate::feed::Request;
use gpuprobe_cuda::{FUNCTIONS, Modes};
use gpuprobe_engine::State;
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::event::{Call, Copy, Event, Task};
use gpuprobe_model::identity::Identity;
use gpuprobe_model::stack::{CallStack, Frame, Language, Location, Symbolize, bare_frame};
use gpuprobe_model::text::size;
use gpuprobe_model::{GpuMemory, GpuUsage, Lost};
use gpuprobe_report::{
    self as report, GroupBy, History, Options, ProcessDetail, Report, ReportSources,
    View as Listing, WorstVerdicts,
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
    worst_verdicts: WorstVerdicts,
    now_ns: u64,
    /// Other processes have sums only.
    only_detail: bool,
}

impl Scene {
    fn new() -> Self {
        let mut scene = Self {
            state: State::default(),
            history: History::default(),
            worst_verdicts: WorstVerdicts::default(),
            now_ns: 10 * SECOND,
            only_detail: true,
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
                ledger.set_stack(pid, stack, Rc::new(stack_of));
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
            only_detail: self.only_detail,
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
            usage: Some(&usage),
            history: Some(&self.history),
            ..ReportSources::of_file(Some(&clock), &Lines)
        };
        let report = report::build(&self.state, Lost::default(), &options, sources);
        self.history.note(&self.state.ledger, &report, self.now_ns);
        let ledger = &self.state.ledger;
        let verdicts = self.worst_verdicts.update(ledger, &options, &Lines);
        self.state.mark_reported();
        let now_ns = self.now_ns;
        self.now_ns += SECOND;
        Update {
            report: Arc::new(report),
            now_ns,
            detail,
            parents: Arc::new(HashMap::from([(20, 10)])),
            verdicts,
            playing: None,
        }
    }
}

/// A view of a scene at its first report.
fn opened() -> (Scene, TopView) {
    let (mut scene, mut view) = (Scene::new(), TopView::default());
    view.update(scene.update(None));
    (scene, view)
}

fn buffer(view: &mut TopView, (width, height): (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let drawn = terminal.draw(|frame| view.draw(frame)).unwrap();
    drawn.buffer.clone()
}

fn drawn(view: &mut TopView, size: (u16, u16)) -> Vec<String> {
    let buffer = buffer(view, size);
    let rows = buffer.content.chunks(usize::from(size.0));
    let text = |row: &[Cell]| row.iter().map(Cell::symbol).collect::<String>();
    rows.map(|row| text(row).trim_end().to_owned()).collect()
}

fn keys(view: &mut TopView, keys: &[KeyCode]) -> Vec<Request> {
    let events = keys.iter().map(|key| Input::Key((*key).into()));
    events.flat_map(|event| view.event(&event)).collect()
}

/// Types the letters of `text`.
fn letters(view: &mut TopView, text: &str) -> Vec<Request> {
    let letters: Vec<_> = text.chars().map(KeyCode::Char).collect();
    keys(view, &letters)
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
    let detail = keys(view, &[KeyCode::Enter])
        .into_iter()
        .find_map(|request| match request {
            Request::Detail(detail) => Some(detail),
            _ => None,
        });
    let update = scene.update(detail.flatten());
    view.update(update.clone());
    update
}
