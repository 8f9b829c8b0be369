//! A census: events come in windows only, and after each the blocks are read.

use gpuprobe_cuda::{BEFORE, BETWEEN};
use gpuprobe_model::blocks::FoundBlocks;
use gpuprobe_model::event::{Event, Task};

use super::found::{block, found};
use super::{MIB, PID, Program};
use crate::verdict::{self, Judgement, Verdict};

const MS: u64 = 1_000_000;
/// Where one block follows the other.
const AT: u64 = 0x4000_0000;
/// Callers.
const KEEPS: u64 = 0x11;
const PASSES: u64 = 0x22;

impl Program {
    /// Opens a window.
    fn window(&mut self) {
        self.ledger.count_by_census(PID);
    }

    /// Blocks are handed out and taken back, without an event.
    fn unseen(&mut self, changes: &[(u64, Option<u64>)]) {
        for (address, bytes) in changes {
            match bytes {
                Some(bytes) => self.blocks.insert((0, *address), *bytes),
                None => self.blocks.remove(&(0, *address)),
            };
        }
    }

    /// What a reading finds now; nothing if it fails.
    fn reading(&mut self, is_read: bool) -> FoundBlocks {
        self.now_ns += 10;
        let blocks = self.blocks.iter();
        let blocks: Vec<_> = blocks
            .map(|((_, at), bytes)| block(*at, *bytes, false))
            .collect();
        let mut found = found(&blocks);
        found
            .devices
            .truncate(usize::from(is_read && !blocks.is_empty()));
        FoundBlocks {
            time_ns: self.now_ns,
            census: Some(is_read),
            ..found
        }
    }

    /// Ends a window; returns how many blocks have come and gone without an event.
    fn census(&mut self, is_read: bool) -> Option<(usize, usize)> {
        let found = self.reading(is_read);
        let news = self.process().news_of(found).unwrap();
        let counts = news
            .devices
            .first()
            .map(|one| (one.blocks.len(), one.gone.len()));
        self.apply(&Event::Blocks(news));
        counts
    }

    /// Live bytes by row or caller.
    fn of(&self, row_or_caller: u64) -> u64 {
        let sites = self.allocator().blocks.sites.iter();
        let found = sites.filter(|site| match &site.stack {
            Some(stack) => stack.locations[0].address == row_or_caller,
            None => u64::from(site.row) == row_or_caller,
        });
        found.map(|site| site.live.all().bytes).sum()
    }

    fn judge(&self, caller: u64) -> Option<Judgement> {
        let sites = &self.allocator().blocks.sites;
        let stack_of = |site| sites.get(site).unwrap().stack.as_ref();
        let is_its =
            |site: &u32| stack_of(*site).is_some_and(|it| it.locations[0].address == caller);
        let number = (0..sites.iter().len() as u32).find(is_its)?;
        verdict::judge(&sites.shape(&[number], self.now_ns))
    }
}

#[test]
fn a_census_tells_what_came_and_went() {
    let [before, between] = [BEFORE, BETWEEN].map(u64::from);
    let mut program = Program::default();
    program.apply(&Event::Process(Task {
        from_birth: false,
        ..crate::task(PID, PID, 0)
    }));
    program.unseen(&[(AT, Some(MIB)), (AT + 8 * MIB, Some(512))]);
    program.window();
    assert_eq!(program.census(true), Some((2, 0)));
    assert_eq!(program.census(true), None);
    assert_eq!(program.of(before), MIB + 512);

    program.window();
    program.call_from(KEEPS);
    program.hand_out(AT + MIB, 2 * MIB);
    program.hand_out(AT + 3 * MIB, MIB);
    program.take_back(AT + 8 * MIB);
    // One of another size is at the address of the second.
    program.unseen(&[
        (AT, None),
        (AT + 3 * MIB, Some(512)),
        (AT + 9 * MIB, Some(1024)),
    ]);
    assert_eq!(program.census(true), Some((2, 2)));
    let sums = [before, between, KEEPS].map(|of| program.of(of));
    assert_eq!(sums, [0, 512 + 1024, 2 * MIB]);
    let allocator = program.allocator();
    assert_eq!(
        [allocator.seen_bytes(), Some(allocator.before_bytes())],
        [Some(2 * MIB), Some(0)]
    );
    assert_eq!(allocator.allocated_bytes, 2 * MIB + 512 + 1024);
    assert_eq!(allocator.peak_allocated_bytes, 4 * MIB + 512);

    // Nothing is left.
    program.unseen(&[(AT + MIB, None), (AT + 3 * MIB, None), (AT + 9 * MIB, None)]);
    assert_eq!(program.census(true), Some((0, 3)));
    assert_eq!(
        (program.live(), program.allocator().allocated_bytes),
        ((0, 0), 0)
    );
}

#[test]
fn blocks_of_a_window_that_cannot_be_confirmed_are_not_kept() {
    let mut program = Program::default();
    program.window();
    program.call_from(KEEPS);
    program.hand_out(AT, MIB);
    assert_eq!(program.census(true), Some((0, 0)));
    program.window();
    program.hand_out(AT + MIB, MIB);
    assert_eq!(program.census(false), Some((0, 1)));
    assert_eq!(program.of(KEEPS), MIB);
    assert_eq!(program.census(true), Some((1, 0)));
    assert_eq!(
        [KEEPS, u64::from(BETWEEN)].map(|of| program.of(of)),
        [MIB; 2]
    );
}

/// A minute of windows: one second in two, in which a loop takes 20 ms for a step.
fn minute(mut step: impl FnMut(&mut Program, u64, bool)) -> Program {
    let mut program = Program::default();
    for second in 0..69 {
        let is_open = second % 2 == 0;
        if is_open {
            program.window();
        }
        for n in 0..50 {
            let now_ns = second * 1_000 * MS + n * 20 * MS;
            program.now_ns = program.now_ns.max(now_ns);
            step(&mut program, second * 50 + n, is_open);
        }
        if is_open {
            program.census(true);
        }
    }
    program
}

/// A block comes or goes, with an event in a window.
fn change(program: &mut Program, caller: u64, address: u64, bytes: Option<u64>, is_seen: bool) {
    match bytes {
        _ if !is_seen => program.unseen(&[(address, bytes)]),
        Some(bytes) => {
            program.call_from(caller);
            program.hand_out(address, bytes);
        }
        None => program.take_back(address),
    }
}

#[test]
fn a_leak_in_windows_is_called_at_its_line_and_nowhere_else() {
    // Each step has a block that passes, whose address one that stays takes afterwards; a window ends in a step.
    let program = minute(|program, n, is_seen| {
        let at = AT + n * 512;
        if n > 0 {
            let last = at - 512;
            change(program, PASSES, last, None, is_seen);
            change(program, KEEPS, last, Some(512), is_seen);
        }
        change(program, PASSES, at, Some(512), is_seen);
    });
    let leak = program.judge(KEEPS).unwrap();
    assert!(leak.is_leak(), "{leak:?}");
    let passes = program.judge(PASSES);
    assert!(
        !passes.as_ref().is_some_and(Judgement::is_leak),
        "{passes:?}"
    );
    assert_eq!(program.allocator().blocks.live.len(), 69 * 50);
    let seen = program.allocator().seen_bytes().unwrap();
    assert!((30 * 50 * 512..=35 * 50 * 512).contains(&seen), "{seen}");
}

#[test]
fn a_cache_whose_blocks_are_replaced_is_no_leak() {
    // Twenty thousand blocks, of which each step replaces one.
    let program = minute(|program, n, is_seen| {
        if n == 0 {
            let all: Vec<_> = (0..20_000).map(|n| (AT + n * 1024, Some(512))).collect();
            program.unseen(&all);
        }
        change(program, KEEPS, AT + n * 1024, None, is_seen);
        change(program, KEEPS, AT + n * 1024 + 512, Some(512), is_seen);
    });
    let cache = program.judge(KEEPS).unwrap();
    assert!(!cache.is_leak(), "{cache:?}");
    assert_ne!(cache.shown(), Verdict::Growing);
}
