//! Each cause by itself.

use super::{Draft, MILLISECOND_NS, Program, Random, ns, times};

const HOUR_S: f64 = 3600.0;

/// A cause, and after how many seconds at the latest it is called a leak.
type Planted = (Option<u64>, Program);

/// Each cause by itself.
pub(in super::super) fn planted() -> Vec<Planted> {
    [
        streams_of_leaks(),
        cycles_of_leaks(),
        what_grows(),
        what_comes_and_goes(),
        what_frameworks_do(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn plant(name: &str, leaks_after_s: Option<u64>, writes: impl FnOnce(&mut Draft)) -> Planted {
    let mut draft = Draft::default();
    writes(&mut draft);
    draft.steps.sort_by_key(|step| (step.time_ns, step.id));
    let program = Program {
        name: name.to_owned(),
        steps: draft.steps,
        attach_ns: 0,
    };
    (leaks_after_s, program)
}

/// The number and time of what happens so often.
fn every(seconds: f64) -> impl Iterator<Item = (u64, u64)> {
    let count = (HOUR_S / seconds) as u64;
    (1..=count).map(move |number| (number, ns(number as f64 * seconds)))
}

fn streams_of_leaks() -> Vec<Planted> {
    vec![
        plant(
            "one tensor in each step, 10 steps a second",
            Some(15),
            |draft| {
                every(0.1).for_each(|(_, at)| draft.keep(at, 1 << 20));
            },
        ),
        plant("linear leak, one a minute", Some(3600), |draft| {
            every(60.0).for_each(|(_, at)| draft.keep(at, 1 << 20));
        }),
        plant(
            "leak of one in a hundred, 200 a second",
            Some(60),
            |draft| {
                every(0.005).for_each(|(number, at)| match number % 100 {
                    0 => draft.keep(at, 1 << 20),
                    _ => draft.pass(at, 1 << 20, 100 * MILLISECOND_NS),
                });
            },
        ),
        plant(
            "leak hidden in a cache that is emptied each 5 s",
            Some(300),
            |draft| {
                every(0.05).for_each(|(number, at)| {
                    let end_ns = (at / ns(5.0) + 1) * ns(5.0);
                    match number % 20 {
                        0 => draft.keep(at, 1 << 20),
                        _ => draft.pass(at, 1 << 20, end_ns - at),
                    }
                });
            },
        ),
    ]
}

fn cycles_of_leaks() -> Vec<Planted> {
    vec![
        plant(
            "one stays of each request, one each 3 s",
            Some(60),
            |draft| {
                every(3.0).for_each(|(_, at)| {
                    (0..10).for_each(|part| draft.pass(at + part, 1 << 20, 50 * MILLISECOND_NS));
                    draft.allocate(at, 1 << 20);
                });
            },
        ),
        plant("one a second stays of a steady 400", Some(300), |draft| {
            every(0.01).for_each(|(number, at)| match number % 100 {
                0 => draft.keep(at, 1 << 20),
                _ => draft.pass(at, 1 << 20, ns(4.0)),
            });
        }),
        plant(
            "11 of 13 handles are released in each cycle of 5 s",
            Some(300),
            |draft| {
                every(5.0).for_each(|(_, at)| {
                    (0..13).for_each(|part| match part {
                        0..2 => draft.keep(at + part, 1 << 20),
                        _ => draft.pass(at + part, 1 << 20, ns(3.0)),
                    });
                });
            },
        ),
        plant("a buffer reallocated larger each time", Some(60), |draft| {
            let mut old = None;
            every(0.5).for_each(|(number, at)| {
                let new = draft.allocate(at, number << 16);
                if let Some(old) = old.replace(new) {
                    draft.free(old, at + MILLISECOND_NS);
                }
            });
        }),
        plant(
            "warm-up of all sizes that levels off after 50 s",
            None,
            |draft| {
                let mut random = Random(50);
                every(0.1).for_each(|(_, at)| match at < ns(50.0) {
                    true => draft.keep(at, random.one_of(1 << 24)),
                    false => draft.pass(at, 1 << 20, MILLISECOND_NS),
                });
            },
        ),
    ]
}

fn what_grows() -> Vec<Planted> {
    vec![
        plant("a pool that doubles", None, |draft| {
            let mut at_s = 0.5;
            while at_s < HOUR_S {
                draft.allocate(ns(at_s), ns(at_s) / 1000);
                at_s *= 2.0;
            }
        }),
        plant("a batch of 12 s, freed at its end", None, |draft| {
            every(0.1).for_each(|(_, at)| {
                let end_ns = (at / ns(12.0) + 1) * ns(12.0);
                draft.pass(at, 1 << 20, end_ns - at);
            });
        }),
    ]
}

fn what_comes_and_goes() -> Vec<Planted> {
    vec![
        plant(
            "a cache of 250 of all sizes that evicts the oldest",
            None,
            |draft| {
                let mut random = Random(250);
                every(0.1).for_each(|(_, at)| draft.pass(at, random.one_of(1 << 24), ns(25.0)));
            },
        ),
        plant("a cache of 128 that evicts the oldest", None, |draft| {
            every(0.1).for_each(|(_, at)| draft.pass(at, 1 << 20, ns(12.8)));
        }),
        plant("workspaces at first use", None, |draft| {
            (0..4).for_each(|number| draft.keep(ns(0.5) * number, 8 << 20));
        }),
        plant(
            "one in fifty is freed after 45 s, the others at once",
            None,
            |draft| {
                every(0.1).for_each(|(number, at)| match number % 50 {
                    0 => draft.pass(at, 1 << 20, ns(45.0)),
                    _ => draft.pass(at, 1 << 20, MILLISECOND_NS),
                });
            },
        ),
    ]
}

/// Programs that hold memory for a reason.
fn what_frameworks_do() -> Vec<Planted> {
    vec![
        plant(
            "a cache of pinned memory, by powers of two",
            None,
            |draft| {
                (0..8).for_each(|number| draft.keep(ns(0.4) * number, 4096 << number));
            },
        ),
        plant(
            "a cache of plans for 64 shapes that come at random",
            None,
            |draft| {
                let (mut random, mut known) = (Random(64), [false; 64]);
                for at in times(&mut Random(65), 10.0, true) {
                    let shape = random.one_of(64);
                    if !std::mem::replace(&mut known[shape as usize], true) {
                        draft.keep(at, shape << 20);
                    }
                }
            },
        ),
        plant("a stream-ordered pool, and record_stream", None, |draft| {
            let mut random = Random(3);
            every(0.1).for_each(|(_, at)| draft.pass(at, 1 << 22, ns(random.between(0.2, 1.5))));
        }),
        plant("sizes tried until one is refused", None, |draft| {
            every(2.0).for_each(|(_, at)| {
                (0..10).for_each(|part| draft.pass(at + part, 1 << (20 + part), ns(0.1)));
            });
        }),
        plant(
            "8 threads, each with a workspace and batches",
            None,
            |draft| {
                (1..=8).for_each(|thread| {
                    draft.keep(ns(0.5) * thread, 32 << 20);
                    let first = ns(0.5) * thread;
                    every(0.25).for_each(|(_, at)| draft.pass(first + at, 1 << 20, ns(0.05)));
                });
            },
        ),
        plant("one allocation", None, |draft| draft.keep(ns(1.0), 1 << 30)),
    ]
}
