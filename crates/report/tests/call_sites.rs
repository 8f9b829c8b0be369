//! Which symbols a report asks for.

#![allow(missing_docs, clippy::unwrap_used)]

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use gpuprobe_cuda::{FUNCTIONS, Modes};
use gpuprobe_engine::State;
use gpuprobe_model::Lost;
use gpuprobe_model::clock::Clock;
use gpuprobe_model::event::{Call, Event};
use gpuprobe_model::identity::Identity;
use gpuprobe_model::stack::{CallStack, Frame, Location, Symbols, bare_frame};
use gpuprobe_report as report;
use gpuprobe_report::profile;
use gpuprobe_report::{Options, View};
use proptest::prelude::*;

const PID: u32 = 7;

/// Symbols that remember what they were asked.
#[derive(Default)]
struct Asked(RefCell<HashSet<(u32, Location, bool)>>);

impl Symbols for Asked {
    fn frames(&self, pid: u32, location: &Location, is_innermost: bool) -> Vec<Frame> {
        self.0.borrow_mut().insert((pid, *location, is_innermost));
        vec![bare_frame(location)]
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
        is_final: false,
        since_last: Duration::ZERO,
        since_start: Duration::ZERO,
        link: None,
    }
}

proptest! {
    #[test]
    fn reports_ask_for_what_they_said_they_need(
        calls in proptest::collection::vec((1u64..100, 0u64..12), 1..50),
        top in proptest::option::of(0usize..5),
        min_bytes in proptest::option::of(0u64..100),
        age in proptest::option::of(950u64..1_000),
    ) {
        let mut state = State::default();
        for number in 1..10 {
            let location = |address| Location { address, module: None, offset: address };
            let stack = CallStack {
                locations: (number % 7..number + 3).map(location).collect(),
                is_complete: true,
            };
            state.ledger.learn_stack(PID, number, Rc::new(stack));
        }
        for (time, (size, stack)) in (1..).zip(&calls) {
            allocate(&mut state, time, *size, *stack);
        }
        let view = View { min_bytes, older_than: age.map(Duration::from_nanos), ..View::default() };
        let options = options(top, view);
        let needed = report::needed_locations(&state, &options);
        let asked = Asked::default();
        let clock = Clock::now();
        let sources = report::Sources::of_file(Some(&clock), &asked);
        let made = report::build(&state, Lost::default(), &options, sources);
        prop_assert_eq!(needed.len(), asked.0.borrow().len());
        prop_assert_eq!(&needed.into_iter().collect::<HashSet<_>>(), &*asked.0.borrow());
        // What is listed and what is said to be left out are all that is live.
        let process = &made.memleak.unwrap().processes[0];
        let sites = process.sites.as_ref().unwrap();
        let left_out = [process.omitted, process.filtered].map(Option::unwrap_or_default);
        let listed: u64 = sites.iter().map(|site| site.live.live_bytes).sum();
        let bytes = listed + left_out[0].bytes + left_out[1].bytes;
        prop_assert_eq!(bytes, process.live.live_bytes);
        let listed: u64 = sites.iter().map(|site| site.live.live_allocations).sum();
        let allocations = listed + left_out[0].allocations + left_out[1].allocations;
        prop_assert_eq!(allocations, calls.len() as u64);

        let asked = Asked::default();
        let needed = profile::needed_locations(&state.ledger);
        profile::of_ledger(&state.ledger, &asked, profile::Which::default(), None);
        prop_assert_eq!(&needed.into_iter().collect::<HashSet<_>>(), &*asked.0.borrow());
    }
}
