//! Growth in step with launches.

use super::programs::paced::{self, PacedProgram};
use super::*;
use crate::Launches;
use gpuprobe_model::abi::RawLaunchKey;

const KEY: RawLaunchKey = RawLaunchKey {
    handle: 7,
    process: 1,
    row: 0,
    epoch: 0,
};

/// The step of a program with its only kernel after so many seconds of watching it; only where it is
/// called a leak, as in reports.
fn step_of(
    paced: &PacedProgram,
    random: &mut Random,
    watched_s: &[u64],
) -> Vec<Option<StepGrowth>> {
    let PacedProgram { program, .. } = paced;
    let (mut sites, mut launches) = (Sites::default(), Launches::default());
    let mut steps = program.steps.iter().peekable();
    let mut launched = paced.launches_ns.iter().peekable();
    let (mut now_ns, mut runs, mut found) = (program.attach_ns, 0, Vec::new());
    for &seconds in watched_s {
        let end_ns = program.attach_ns + seconds * SECOND_NS;
        while now_ns < end_ns {
            // Polled each 100 ms or so.
            now_ns = end_ns.min(now_ns + 100_000_000 + random.one_of(5_000_000));
            while let Some(step) = steps.next_if(|step| step.time_ns <= now_ns) {
                if step.time_ns >= program.attach_ns {
                    programs::enter(&mut sites, step, program.attach_ns);
                }
            }
            while let Some(&time_ns) = launched.next_if(|time_ns| **time_ns <= now_ns) {
                runs += u64::from(time_ns >= program.attach_ns);
            }
            if now_ns == end_ns || launches.samples().is_due(now_ns) {
                launches.set_counts(KEY, runs, 0);
                launches.sample(now_ns, 0);
            }
        }
        let shape = sites.shape(&[0], now_ns);
        let is_leak = judge(&shape).is_some_and(|said| said.is_leak());
        let samples = launches.samples();
        let step = steps_of(&shape, samples);
        found.push(step.filter(|_| is_leak));
    }
    found
}

fn steps_of(shape: &SeriesShape, samples: &crate::launches::LaunchSamples) -> Option<StepGrowth> {
    steps(shape, samples.spacing_ns(), |time_ns| {
        samples.at(&KEY, time_ns)
    })
}

const WATCHED_S: [u64; 5] = [60, 67, 75, 120, 300];

#[test]
fn what_stays_of_each_step_is_told() {
    let mut random = Random(20_261_123);
    let (mut irregular, mut told) = (0, 0);
    for _ in 0..200 {
        let paced = paced::in_step(&mut random);
        let found = step_of(&paced, &mut random, &WATCHED_S);
        for step in found.iter().flatten() {
            assert_eq!(
                (step.launches, step.stay),
                paced.step,
                "{}",
                paced.program.name
            );
        }
        let is_reported = found[WATCHED_S.len() - 1].is_some();
        if paced.is_regular {
            assert!(is_reported, "{}: {found:#?}", paced.program.name);
        } else {
            irregular += 1;
            told += u32::from(is_reported);
        }
    }
    // Between two samples of the launches, irregular steps are where they are: some are not told.
    assert!(told * 3 >= irregular * 2, "{told} of {irregular}");
}

#[test]
fn steps_with_pauses_are_never_told_wrongly() {
    let mut random = Random(20_261_124);
    let mut told = 0;
    for _ in 0..60 {
        let paced = paced::in_step_with_pauses(&mut random);
        let found = step_of(&paced, &mut random, &WATCHED_S);
        for step in found.iter().flatten() {
            told += 1;
            assert_eq!(
                (step.launches, step.stay),
                paced.step,
                "{}",
                paced.program.name
            );
        }
    }
    assert!(told > 100, "{told}");
}

#[test]
#[allow(clippy::print_stdout, reason = "the seed, to see the same again")]
fn growth_that_is_unrelated_to_launches_and_clean_programs_have_no_step() {
    let seed = std::env::var("GPUPROBE_SEED").ok();
    let seed = seed
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(20_261_123);
    println!("GPUPROBE_SEED={seed}");
    let mut random = Random(seed);
    let mut wrong = Vec::new();
    for number in 0..600 {
        let paced = match number % 2 {
            0 => paced::unrelated(&mut random),
            _ => paced::clean_in_step(&mut random),
        };
        let found = step_of(&paced, &mut random, &WATCHED_S);
        if found.iter().any(Option::is_some) {
            wrong.push((paced.program.name, paced.launches_ns.len(), found));
        }
    }
    assert!(wrong.is_empty(), "{}: {wrong:#?}", wrong.len());
}
