//! Symbols that a report requests.

#![allow(missing_docs, clippy::unwrap_used)]

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use gpuprobe_cuda::{FUNCTIONS, Modes};
use gpuprobe_engine::State;
use gpuprobe_model::Lost;
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::event::{Call, Event};
use gpuprobe_model::identity::Identity;
use gpuprobe_model::stack::{
    CallStack, Frame, Language, Location, ModuleId, Symbolize, bare_frame,
};
use gpuprobe_report as report;
use gpuprobe_report::memleak::ProcessReport;
use gpuprobe_report::profile::{self, ProfileScope};
use gpuprobe_report::{GroupBy, Options, View};
use proptest::prelude::*;

const PID: u32 = 7;

/// A symboliser that remembers its requests.
#[derive(Default)]
struct QueriedNames(RefCell<HashSet<(u32, Location, bool)>>);

impl Symbolize for QueriedNames {
    fn frames(&self, pid: u32, location: &Location, is_innermost: bool) -> Vec<Frame> {
        self.0.borrow_mut().insert((pid, *location, is_innermost));
        Lines.frames(pid, location, is_innermost)
    }
}

fn allocate(state: &mut State, time_ns: u64, size_bytes: u64, stack: u64) {
    let row = FUNCTIONS.iter().position(|f| f.symbol == "cudaMalloc");
    let row = row.unwrap();
    let call = Call {
        row: u16::try_from(row).unwrap(),
        function: &FUNCTIONS[row],
        result: 0,
        pid: PID,
        tid: PID,
        start_ns: time_ns,
        end_ns: time_ns,
        address: time_ns,
        size_bytes,
        device: None,
        context: 0,
        captured: false,
        stack,
        detail: None,
    };
    let ledger = &mut state.ledger;
    ledger.apply(&Event::Call(call), |_| Identity::default());
}

fn options(top: Option<usize>, view: View) -> Options {
    Options {
        modes: Modes {
            memleak: true,
            ..Modes::default()
        },
        top,
        view,
        stacks: true,
        host_wide: false,
        now_ns: 1_000,
        allocations: true,
        explains: false,
        is_final: false,
        since_last: Duration::ZERO,
        since_start: Duration::ZERO,
        link: None,
        detail: None,
        only_detail: false,
    }
}

proptest! {
    #[test]
    fn reports_request_only_the_needed_locations(
        calls in proptest::collection::vec((1u64..100, 0u64..12), 1..50),
        top in proptest::option::of(0usize..5),
        min_bytes in proptest::option::of(0u64..100),
        age in proptest::option::of(950u64..1_000),
    ) {
        let mut state = State::default();
        for number in 1..10 {
            let location = |address: u64| match u32::try_from(address) {
                Ok(line) if line % 2 == 1 => Location::python(line),
                _ => Location { address, module: None, offset: address },
            };
            let stack = CallStack {
                locations: (number % 7..number + 3).map(location).collect(),
                is_complete: true,
            };
            state.ledger.set_stack(PID, number, Rc::new(stack));
        }
        for (time, (size, stack)) in (1..).zip(&calls) {
            allocate(&mut state, time, *size, *stack);
        }
        let view = View { min_bytes, older_than: age.map(Duration::from_nanos), ..View::default() };
        let options = options(top, view);
        let needed = report::needed_locations(&state, &options, &Lines, None);
        let asked = QueriedNames::default();
        let clock = WallClock::now();
        let sources = report::ReportSources::of_file(Some(&clock), &asked);
        let made = report::build(&state, Lost::default(), &options, sources);
        prop_assert_eq!(needed.len(), asked.0.borrow().len());
        prop_assert_eq!(&needed.into_iter().collect::<HashSet<_>>(), &*asked.0.borrow());
        // Listed and omitted memory add up to all live memory.
        let process = &made.memleak.unwrap().processes[0];
        let sites = process.lists.sites.as_ref().unwrap();
        let left_out = [process.lists.omitted, process.lists.filtered].map(Option::unwrap_or_default);
        let listed: u64 = sites.iter().map(|site| site.live.gpu.bytes).sum();
        let bytes = listed + left_out[0].bytes + left_out[1].bytes;
        prop_assert_eq!(bytes, process.live.gpu.bytes);
        let listed: u64 = sites.iter().map(|site| site.live.gpu.allocations).sum();
        let allocations = listed + left_out[0].allocations + left_out[1].allocations;
        prop_assert_eq!(allocations, calls.len() as u64);

        let asked = QueriedNames::default();
        let needed = profile::needed_locations(&state.ledger, ProfileScope::default());
        profile::of_ledger(&state.ledger, &asked, ProfileScope::default(), None);
        prop_assert_eq!(&needed.into_iter().collect::<HashSet<_>>(), &*asked.0.borrow());
    }
}

/// Python lines by number: of a user's file, of a library, or a marker.
struct Lines;

impl Symbolize for Lines {
    fn frames(&self, _pid: u32, location: &Location, _is_innermost: bool) -> Vec<Frame> {
        let Some(number) = location.python_line() else {
            return vec![bare_frame(location)];
        };
        let file = match number % 3 {
            0 => Some(format!("/home/ada/{}.py", number % 2)),
            1 => Some("/v/site-packages/torch/nn/x.py".to_owned()),
            _ => None,
        };
        vec![Frame {
            function: format!("f{}", number % 4),
            file,
            line: Some(number % 2),
            module: String::new(),
            language: Language::Python,
            ..bare_frame(location)
        }]
    }
}

proptest! {
    #[test]
    fn grouping_sites_loses_nothing(
        stacks in proptest::collection::vec(proptest::collection::vec(0u32..24, 0..5), 1..12),
        calls in proptest::collection::vec((1u64..100, 0usize..12), 1..60),
        freed in proptest::collection::vec(1u64..60, 0..30),
        top in proptest::option::of(0usize..5),
        min_bytes in proptest::option::of(0u64..100),
    ) {
        let mut state = State::default();
        for (number, lines) in (1..).zip(&stacks) {
            let native = Location { address: number, module: Some(ModuleId(1)), offset: number };
            let python = lines.iter().map(|&line| Location::python(line));
            let locations = std::iter::once(native).chain(python).collect();
            let stack = CallStack { locations, is_complete: true };
            state.ledger.set_stack(PID, number, Rc::new(stack));
        }
        for (time, (size, stack)) in (1..).zip(&calls) {
            allocate(&mut state, time, *size, (stack % stacks.len()) as u64 + 1);
        }
        for address in freed {
            free(&mut state, address);
        }
        let clock = WallClock::now();
        let sources = report::ReportSources::of_file(Some(&clock), &Lines);
        let build = |group| {
            let view = View { group: Some(group), min_bytes, ..View::default() };
            let made = report::build(&state, Lost::default(), &options(top, view), sources);
            made.memleak.unwrap().processes.remove(0)
        };
        let (together, apart) = (build(GroupBy::Stack), build(GroupBy::NativeStack));
        let sum = |process: &ProcessReport| {
            let sites = process.lists.sites.as_ref().unwrap();
            let listed: u64 = sites.iter().map(|site| site.live.gpu.bytes).sum();
            let left = [process.lists.omitted, process.lists.filtered].map(Option::unwrap_or_default);
            listed + left[0].bytes + left[1].bytes
        };
        prop_assert_eq!(sum(&together), sum(&apart));
        prop_assert_eq!(sum(&together), together.live.gpu.bytes);
        // Every site is part of one grouped site, and every allocation is counted once.
        let sites = together.lists.sites.as_ref().unwrap();
        if top.is_none() {
            let variants: u64 = sites.iter().map(|site| site.variants).sum();
            prop_assert_eq!(variants, apart.lists.sites.as_ref().unwrap().len() as u64);
            for site in apart.lists.sites.as_ref().unwrap() {
                prop_assert_eq!(sites.iter().filter(|one| one.has_id(site.id)).count(), 1);
            }
            for allocation in together.threads.iter().flat_map(|thread| &thread.allocations) {
                prop_assert!(sites.iter().any(|site| Some(site.id) == allocation.site));
            }
        }
        for site in sites {
            prop_assert_eq!(site.alloc_bytes - site.freed_bytes >= site.live.gpu.bytes, true);
            prop_assert!(site.peak.least <= site.peak.most);
            prop_assert!(site.peak.exact().is_some() || site.own_ids.len() > 1);
            prop_assert!(site.peak.least >= site.live.gpu.bytes);
        }
    }
}

fn free(state: &mut State, address: u64) {
    let row = FUNCTIONS
        .iter()
        .position(|f| f.symbol == "cudaFree")
        .unwrap();
    let call = Call {
        row: u16::try_from(row).unwrap(),
        function: &FUNCTIONS[row],
        result: 0,
        pid: PID,
        tid: PID,
        start_ns: 500,
        end_ns: 500,
        address,
        size_bytes: 0,
        device: None,
        context: 0,
        captured: false,
        stack: 0,
        detail: None,
    };
    let ledger = &mut state.ledger;
    ledger.apply(&Event::Call(call), |_| Identity::default());
}
