//! Programs that allocate at one call site, by what is known of them.

use crate::Allocation;
use crate::allocation::{AllocationPlace, NewAllocation};
use crate::sites::Sites;
use gpuprobe_cuda::{AddressSpace, MemoryKind};

mod planted;

pub(super) use planted::planted;

pub(super) const SECOND_NS: u64 = 1_000_000_000;
const MILLISECOND_NS: u64 = 1_000_000;
const END_NS: u64 = 400 * SECOND_NS;
/// More steps of a program tell nothing new, and take long.
const MAX_TIMES: u64 = 20_000;

/// Something is allocated, or freed, at the only site.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) time_ns: u64,
    pub(super) is_free: bool,
    /// When it was allocated.
    born_ns: u64,
    id: u64,
    bytes: u64,
}

/// The steps of a program, and from when on it is watched.
pub(super) struct Program {
    pub(super) name: String,
    pub(super) steps: Vec<Step>,
    pub(super) attach_ns: u64,
}

/// Enters a step.
pub(super) fn enter(sites: &mut Sites, step: &Step, attach_ns: u64) {
    sites.after_peak(0, step.time_ns);
    let allocation = Allocation::new(&NewAllocation {
        address: step.id,
        size_bytes: step.bytes,
        end_ns: step.born_ns,
        tid: 0,
        row: 0,
        site: sites.site(0, 0),
        kind: MemoryKind::Device,
        space: AddressSpace::Device,
        place: AllocationPlace::Device(0),
        slot: 0,
    });
    match step.is_free {
        false => sites.add(&allocation),
        true if step.born_ns >= attach_ns => sites.subtract(&allocation),
        true => sites.note_unknown_free(),
    }
}

/// Numbers that look random and are the same each time: the generator splitmix64.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.unit()
    }

    /// Likewise, each order of magnitude as often.
    fn scale(&mut self, least: f64, most: f64) -> f64 {
        self.between(least.ln(), most.ln()).exp()
    }

    /// A time that passes at random, ns, so long on average.
    fn pause(&mut self, mean_s: f64) -> u64 {
        ns(-mean_s * (1.0 - self.unit()).ln())
    }

    pub(super) fn one_of(&mut self, count: u64) -> u64 {
        self.next() % count
    }
}

fn ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// A program as it is written down.
#[derive(Default)]
struct Draft {
    steps: Vec<Step>,
    next: u64,
}

impl Draft {
    fn allocate(&mut self, time_ns: u64, bytes: u64) -> Step {
        self.next += 1;
        let step = Step {
            time_ns,
            is_free: false,
            born_ns: time_ns,
            id: self.next,
            bytes,
        };
        self.steps.push(step);
        step
    }

    /// Allocated and never freed.
    fn keep(&mut self, time_ns: u64, bytes: u64) {
        self.allocate(time_ns, bytes);
    }

    fn free(&mut self, step: Step, time_ns: u64) {
        self.steps.push(Step {
            time_ns: time_ns.max(step.time_ns + 1),
            is_free: true,
            ..step
        });
    }

    /// Allocated and freed after so long.
    fn pass(&mut self, time_ns: u64, bytes: u64, life_ns: u64) {
        let step = self.allocate(time_ns, bytes);
        self.free(step, time_ns + life_ns);
    }

    /// Is watched from its start, or from later on.
    fn done(mut self, name: &str, random: &mut Random) -> Program {
        self.steps.sort_by_key(|step| (step.time_ns, step.id));
        let is_late = random.one_of(3) == 0;
        let attach_ns = match is_late {
            true => ns(random.between(1.0, 60.0)),
            false => 0,
        };
        Program {
            name: format!("{name}, watched from {:.1} s on", attach_ns as f64 / 1e9),
            steps: self.steps,
            attach_ns,
        }
    }
}

/// The times of what happens so often a second, in step or at random.
fn times(random: &mut Random, rate: f64, is_regular: bool) -> Vec<u64> {
    let mut times = Vec::new();
    let mut now_ns = 0;
    while now_ns < END_NS && (times.len() as u64) < MAX_TIMES {
        now_ns += match is_regular {
            true => ns(1.0 / rate),
            false => random.pause(1.0 / rate),
        };
        times.push(now_ns);
    }
    times
}

fn bytes(random: &mut Random) -> u64 {
    random.scale(512.0, 1e9) as u64
}

/// So often a second at most that it lasts to the end.
fn rate(random: &mut Random, least: f64) -> f64 {
    random.scale(least, MAX_TIMES as f64 / 400.0)
}

/// A program that leaks: at least one allocation in six seconds.
pub(super) fn leaky(random: &mut Random) -> Program {
    let mut draft = Draft::default();
    let bytes = bytes(random);
    let is_regular = random.one_of(2) == 0;
    let name = match random.one_of(7) {
        0 => {
            let rate = rate(random, 0.2);
            for time_ns in times(random, rate, is_regular) {
                draft.keep(time_ns, bytes);
            }
            format!("a linear leak, {rate:.2} a second, regular {is_regular}")
        }
        1 => keeps_one_in_many(&mut draft, bytes, is_regular, random),
        2 => keeps_some_of_a_cache(&mut draft, bytes, is_regular, random),
        3 => keeps_one_a_request(&mut draft, bytes, is_regular, random),
        4 => keeps_some_of_a_load(&mut draft, bytes, is_regular, random),
        5 => makes_a_larger_one(&mut draft, bytes, is_regular, random),
        _ => keeps_handles_of_cycles(&mut draft, bytes, random),
    };
    draft.done(&name, random)
}

fn keeps_one_in_many(
    draft: &mut Draft,
    bytes: u64,
    is_regular: bool,
    random: &mut Random,
) -> String {
    let rate = rate(random, 20.0);
    let one_in = random.one_of(100) + 2;
    let life_s = random.scale(0.001, 2.0);
    for (number, time_ns) in (1..).zip(times(random, rate, is_regular)) {
        match number % one_in {
            0 => draft.keep(time_ns, bytes),
            _ => draft.pass(time_ns, bytes, random.pause(life_s)),
        }
    }
    format!("a leak of one in {one_in}, {rate:.1} a second that live {life_s:.3} s")
}

fn keeps_some_of_a_cache(
    draft: &mut Draft,
    bytes: u64,
    is_regular: bool,
    random: &mut Random,
) -> String {
    let period_s = random.between(0.5, 6.0);
    let rate = rate(random, 10.0);
    let one_in = random.one_of(30) + 5;
    for (number, time_ns) in (1..).zip(times(random, rate, is_regular)) {
        let end_ns = (time_ns / ns(period_s) + 1) * ns(period_s);
        match number % one_in {
            0 => draft.keep(time_ns, bytes),
            _ => draft.pass(time_ns, bytes, end_ns - time_ns),
        }
    }
    format!("one in {one_in} of a sawtooth of {period_s:.1} s stays, {rate:.1} a second")
}

fn keeps_one_a_request(
    draft: &mut Draft,
    bytes: u64,
    is_regular: bool,
    random: &mut Random,
) -> String {
    let every_s = random.between(0.2, 5.0);
    for time_ns in times(random, 1.0 / every_s, is_regular) {
        for part in 0..random.one_of(10) {
            let begun_ns = time_ns + part * MILLISECOND_NS;
            draft.pass(begun_ns, bytes, 20 * MILLISECOND_NS);
        }
        draft.keep(time_ns, bytes);
    }
    format!("one stays of each request, each {every_s:.1} s, regular {is_regular}")
}

fn keeps_some_of_a_load(
    draft: &mut Draft,
    bytes: u64,
    is_regular: bool,
    random: &mut Random,
) -> String {
    let life_s = random.between(0.5, 6.0);
    let rate = rate(random, 20.0);
    for time_ns in times(random, rate, false) {
        draft.pass(time_ns, bytes, random.pause(life_s));
    }
    let leak = random.scale(0.3, 3.0);
    for time_ns in times(random, leak, is_regular) {
        draft.keep(time_ns, bytes);
    }
    format!("{leak:.2} a second stay of {rate:.1} that live {life_s:.2} s")
}

fn makes_a_larger_one(
    draft: &mut Draft,
    bytes: u64,
    is_regular: bool,
    random: &mut Random,
) -> String {
    let every_s = random.scale(0.05, 3.0);
    let mut old: Option<Step> = None;
    for (number, time_ns) in (1..).zip(times(random, 1.0 / every_s, is_regular)) {
        let new = draft.allocate(time_ns, bytes * number);
        if let Some(old) = old.replace(new) {
            draft.free(old, time_ns + MILLISECOND_NS);
        }
    }
    format!("one reallocated larger each time, each {every_s:.2} s")
}

fn keeps_handles_of_cycles(draft: &mut Draft, bytes: u64, random: &mut Random) -> String {
    let period_s = random.between(1.0, 6.0);
    for time_ns in times(random, 1.0 / period_s, true) {
        for part in 0..13 {
            let begun_ns = time_ns + part * MILLISECOND_NS;
            match part {
                0..2 => draft.keep(begun_ns, bytes),
                _ => draft.pass(begun_ns, bytes, ns(period_s * 0.6)),
            }
        }
    }
    format!("11 of 13 are released in each cycle of {period_s:.1} s")
}

/// How long something takes to fill. In step and with one size, it looks like a leak after 13 s.
fn fills_s(random: &mut Random, is_regular: bool) -> f64 {
    random.between(0.5, if is_regular { 12.0 } else { 45.0 })
}

/// A program that does not leak.
pub(super) fn clean(random: &mut Random) -> Program {
    let mut draft = Draft::default();
    let name = match random.one_of(12) {
        0 => warms_up(&mut draft, random),
        1 => doubles(&mut draft, random),
        2 => batches(&mut draft, random),
        3 => least_recently_used(&mut draft, random),
        4 => replaces_at_random(&mut draft, random),
        5 => allocates_once(&mut draft, random),
        6 => has_a_steady_load(&mut draft, random),
        7 => walks_at_random(&mut draft, random),
        8 => has_stragglers(&mut draft, random),
        9 => lives_by_a_power_law(&mut draft, random),
        10 => varies_in_size(&mut draft, random),
        _ => loads_and_works(&mut draft, random),
    };
    draft.done(&name, random)
}

/// It grows for up to 45 s, evenly or by less and less, while it works.
fn warms_up(draft: &mut Draft, random: &mut Random) -> String {
    let is_regular = random.one_of(2) == 0;
    let until_s = fills_s(random, is_regular);
    let is_even = random.one_of(2) == 0;
    let bytes = bytes(random);
    let rate = rate(random, 0.5);
    for time_ns in times(random, rate, is_regular) {
        let at_s = time_ns as f64 / 1e9;
        let keeps = match is_even {
            true => at_s < until_s,
            false => at_s < until_s && random.unit() < (-5.0 * at_s / until_s).exp(),
        };
        match keeps {
            true => draft.keep(time_ns, bytes),
            false => draft.pass(time_ns, bytes, random.pause(0.05)),
        }
    }
    format!("a warm-up of {until_s:.1} s, {rate:.1} a second, even {is_even}")
}

/// A pool that takes as much again as it has whenever it is full.
fn doubles(draft: &mut Draft, random: &mut Random) -> String {
    let first_s = random.between(0.2, 3.0);
    let mut bytes = 1 << 20;
    let mut at_s = first_s;
    while at_s < 50.0 {
        draft.allocate(ns(at_s), bytes);
        bytes *= 2;
        at_s *= 2.0;
    }
    format!("a pool that doubles from {first_s:.1} s on")
}

/// Batches of a few seconds, freed at the end of each, with pauses.
fn batches(draft: &mut Draft, random: &mut Random) -> String {
    let is_regular = random.one_of(2) == 0;
    let period_s = fills_s(random, is_regular);
    let works_s = period_s * random.between(0.3, 1.0);
    let bytes = bytes(random);
    let rate = rate(random, 1.0);
    for time_ns in times(random, rate, is_regular) {
        let begin_ns = time_ns / ns(period_s) * ns(period_s);
        let until_ns = begin_ns + ns(works_s);
        if time_ns < until_ns {
            draft.pass(time_ns, bytes, until_ns - time_ns);
        }
    }
    format!("batches of {works_s:.1} s of {period_s:.1} s, {rate:.1} a second")
}

/// A full cache puts out what it has had for longest.
fn least_recently_used(draft: &mut Draft, random: &mut Random) -> String {
    let is_regular = random.one_of(2) == 0;
    let fills_s = fills_s(random, is_regular);
    let rate = rate(random, 1.0);
    let room = ((fills_s * rate) as usize).max(1);
    let bytes = bytes(random);
    let mut held = std::collections::VecDeque::new();
    for time_ns in times(random, rate, is_regular) {
        if held.len() == room
            && let Some(step) = held.pop_front()
        {
            draft.free(step, time_ns);
        }
        held.push_back(draft.allocate(time_ns, bytes));
    }
    format!("a cache of {room} that is full after {fills_s:.1} s")
}

/// A full cache puts out any.
fn replaces_at_random(draft: &mut Draft, random: &mut Random) -> String {
    let fills_s = random.between(0.5, 45.0);
    let rate = rate(random, 1.0);
    let room = ((fills_s * rate) as usize).max(1);
    let bytes = bytes(random);
    let mut held = Vec::new();
    for time_ns in times(random, rate, false) {
        if held.len() == room {
            let step = held.swap_remove(random.one_of(room as u64) as usize);
            draft.free(step, time_ns);
        }
        held.push(draft.allocate(time_ns, bytes));
    }
    format!("a cache of {room}, full after {fills_s:.1} s, that puts out any")
}

/// A few workspaces at the first use of each, and nothing else.
fn allocates_once(draft: &mut Draft, random: &mut Random) -> String {
    let count = random.one_of(30) + 1;
    for _ in 0..count {
        let time_ns = random.pause(random.0 as f64 / u64::MAX as f64 * 5.0);
        draft.allocate(time_ns, 8 << 20);
    }
    format!("{count} workspaces")
}

/// So many come each second, and live for a while.
fn has_a_steady_load(draft: &mut Draft, random: &mut Random) -> String {
    let life_s = random.scale(0.001, 20.0);
    let rate = rate(random, 1.0);
    let bytes = bytes(random);
    for time_ns in times(random, rate, random.0.is_multiple_of(2)) {
        draft.pass(time_ns, bytes, random.pause(life_s));
    }
    format!("{rate:.1} a second that live {life_s:.3} s")
}

/// One is allocated, or one of those that are live is freed, as a coin falls.
fn walks_at_random(draft: &mut Draft, random: &mut Random) -> String {
    let rate = rate(random, 2.0);
    let bytes = bytes(random);
    let mut held: Vec<Step> = Vec::new();
    for time_ns in times(random, rate, false) {
        if random.one_of(2) == 0 && !held.is_empty() {
            let step = held.swap_remove(random.one_of(held.len() as u64) as usize);
            draft.free(step, time_ns);
        } else {
            held.push(draft.allocate(time_ns, bytes));
        }
    }
    format!("a random walk, {rate:.1} steps a second")
}

/// Nearly all is freed at once, some after a few seconds.
fn has_stragglers(draft: &mut Draft, random: &mut Random) -> String {
    let rate = rate(random, 5.0);
    let one_in = random.one_of(200) + 2;
    let late_s = random.between(5.0, 12.0);
    let bytes = bytes(random);
    for (number, time_ns) in (0..).zip(times(random, rate, true)) {
        let life_s = match number % one_in {
            0 => late_s,
            _ => 0.01,
        };
        draft.pass(time_ns, bytes, ns(life_s));
    }
    format!("one in {one_in} lives {late_s:.1} s, {rate:.1} a second")
}

/// Some live very much longer than most.
fn lives_by_a_power_law(draft: &mut Draft, random: &mut Random) -> String {
    let rate = rate(random, 5.0);
    let power = random.between(0.7, 2.0);
    let least_s = random.scale(0.001, 0.1);
    let bytes = bytes(random);
    for time_ns in times(random, rate, false) {
        let life_s = least_s * (1.0 - random.unit()).powf(-1.0 / power);
        draft.pass(time_ns, bytes, ns(life_s.min(1e6)));
    }
    format!("lives of a power law of {power:.2} from {least_s:.3} s on, {rate:.1} a second")
}

/// Weights that stay, then steps of training that free what they allocate.
fn loads_and_works(draft: &mut Draft, random: &mut Random) -> String {
    let count = random.one_of(500) + 1;
    let until_s = random.between(0.1, 20.0);
    for number in 0..count {
        let at_s = until_s * number as f64 / count as f64;
        let bytes = bytes(random);
        draft.allocate(ns(at_s), bytes);
    }
    let step_s = random.between(0.05, 2.0);
    for time_ns in times(random, 1.0 / step_s, true) {
        for part in 0..10 {
            draft.pass(time_ns + part * MILLISECOND_NS, 1 << 20, ns(step_s * 0.8));
        }
    }
    format!("{count} weights in {until_s:.1} s, then steps of {step_s:.2} s")
}

/// One is reallocated at each step, of any size.
fn varies_in_size(draft: &mut Draft, random: &mut Random) -> String {
    let every_s = random.scale(0.05, 3.0);
    for time_ns in times(random, 1.0 / every_s, true) {
        let bytes = bytes(random);
        draft.pass(time_ns, bytes, ns(every_s * 0.9));
    }
    format!("one of any size each {every_s:.2} s")
}
