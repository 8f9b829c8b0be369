//! Programs that launch a kernel, and keep memory in step with that or not.

use super::{Draft, MILLISECOND_NS, Program, Random, clean, leaky, ns, times};

/// A program, the times of its launches, and what stays of how many launches.
pub(in super::super) struct PacedProgram {
    pub(in super::super) program: Program,
    pub(in super::super) launches_ns: Vec<u64>,
    /// Launches in a step, and allocations that stay of it.
    pub(in super::super) step: (u64, u64),
    /// Whether steps take the same time each.
    pub(in super::super) is_regular: bool,
}

/// Some allocations stay of each step, and others do not.
pub(in super::super) fn in_step(random: &mut Random) -> PacedProgram {
    let mut draft = Draft::default();
    let rate = random.scale(3.0, 50.0);
    let is_regular = random.one_of(2) == 0;
    let step = match random.one_of(2) {
        0 => (random.one_of(4) + 1, 1),
        _ => (1, random.one_of(4) + 1),
    };
    let is_passing = random.one_of(2) == 0;
    let mut launches_ns = Vec::new();
    for time_ns in times(random, rate, is_regular) {
        launches_ns.extend((0..step.0).map(|launch| time_ns + launch * MILLISECOND_NS));
        for part in 0..step.1 {
            draft.keep(time_ns + part * MILLISECOND_NS, 4096);
        }
        if is_passing {
            draft.pass(time_ns, 4096, random.pause(0.01));
        }
    }
    launches_ns.sort_unstable();
    let name = format!("{step:?} in each step, {rate:.2} a second, regular {is_regular}");
    PacedProgram {
        program: draft.done(&name, random),
        launches_ns,
        step,
        is_regular,
    }
}

/// A leak beside launches that it does not depend on, at random times and about as frequent.
pub(in super::super) fn unrelated(random: &mut Random) -> PacedProgram {
    let program = match random.one_of(2) {
        0 => leaky(random),
        _ => {
            let mut draft = Draft::default();
            let rate = random.scale(2.0, 50.0);
            let is_regular = random.one_of(2) == 0;
            for time_ns in times(random, rate, is_regular) {
                draft.keep(time_ns, 4096);
            }
            draft.done(&format!("{rate:.2} a second stay"), random)
        }
    };
    let rate = random.scale(2.0, 50.0);
    PacedProgram {
        program,
        launches_ns: times(random, rate, false),
        step: (0, 0),
        is_regular: false,
    }
}

/// A program that does not leak, with a launch for each of its allocations.
pub(in super::super) fn clean_in_step(random: &mut Random) -> PacedProgram {
    let program = clean(random);
    let allocations = program.steps.iter().filter(|step| !step.is_free);
    PacedProgram {
        launches_ns: allocations.map(|step| step.time_ns).collect(),
        program,
        step: (0, 0),
        is_regular: false,
    }
}

/// Steps that come by fits and starts: work for some seconds, then none.
pub(in super::super) fn in_step_with_pauses(random: &mut Random) -> PacedProgram {
    let mut draft = Draft::default();
    let rate = random.scale(10.0, 50.0);
    let period_ns = ns(random.between(2.0, 5.0));
    let all = times(random, rate, true);
    let works = |time_ns: &u64| time_ns % period_ns < period_ns / 2;
    let launches_ns: Vec<_> = all.into_iter().filter(works).collect();
    for &time_ns in &launches_ns {
        draft.keep(time_ns, 4096);
    }
    PacedProgram {
        program: draft.done("steps with pauses", random),
        launches_ns,
        step: (1, 1),
        is_regular: false,
    }
}
