//! Programs of known behaviour: each cause by itself, and a thousand at random.

mod programs;
mod values;

use super::*;
use crate::sites::Sites;
use crate::sites::series::{AGES, least_age_ns};
use programs::{Program, Random, SECOND_NS, clean, leaky, planted};

/// The judgement of the only site of a program after so many seconds of watching it.
fn judged(program: &Program, watched_s: &[u64]) -> Vec<Option<Judgement>> {
    let mut sites = Sites::default();
    let mut said = Vec::new();
    let mut steps = program.steps.iter().peekable();
    for &seconds in watched_s {
        let now_ns = program.attach_ns + seconds * SECOND_NS;
        while let Some(step) = steps.next_if(|step| step.time_ns <= now_ns) {
            if step.time_ns >= program.attach_ns {
                programs::enter(&mut sites, step, program.attach_ns);
            }
        }
        said.push(judge(&sites.shape(&[0], now_ns)));
    }
    said
}

/// When a verdict is asked for.
const WATCHED_S: [u64; 12] = [5, 10, 20, 30, 45, 57, 60, 75, 90, 120, 200, 300];

#[test]
#[allow(clippy::print_stdout, reason = "the seed, to see the same again")]
fn a_thousand_programs_at_random() {
    let seed = std::env::var("GPUPROBE_SEED").ok();
    let seed = seed
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(20_261_123);
    println!("GPUPROBE_SEED={seed}");
    let mut random = Random(seed);
    let mut named = 0;
    let mut wrong = Vec::new();
    let mut missed = Vec::new();
    for number in 0..1000 {
        let is_clean = number % 2 == 0;
        let program = match is_clean {
            true => clean(&mut random),
            false => leaky(&mut random),
        };
        let said = judged(&program, &WATCHED_S);
        let leaks: Vec<_> = WATCHED_S
            .iter()
            .zip(&said)
            .filter(|(_, said)| said.as_ref().is_some_and(Judgement::is_leak))
            .collect();
        match leaks.first() {
            Some((seconds, said)) if is_clean => {
                wrong.push(format!("{} after {seconds} s: {said:?}", program.name));
            }
            None if !is_clean => missed.push(format!("{}: {:?}", program.name, said.last())),
            Some(_) => named += 1,
            None => {}
        }
    }
    println!(
        "{named} of 500 leaks are named, {} that are none",
        wrong.len()
    );
    missed.iter().for_each(|missed| println!("missed {missed}"));
    assert!(wrong.is_empty(), "called a leak: {wrong:#?}");
    assert!(named >= 490, "only {named} of 500 leaks are named");
}

fn in_a_word(said: Option<&Judgement>) -> String {
    let Some(said) = said else {
        return "nothing is live".to_owned();
    };
    let verdict = said.verdict.name();
    match said.confidence {
        Confidence::Certain => format!("**{verdict}**, certain"),
        Confidence::Likely if said.is_leak() => format!("**{verdict}**, likely"),
        Confidence::Likely => verdict.to_owned(),
        Confidence::NotEnough(more_ns) => {
            format!("too early: {} s more", more_ns.div_ceil(SECOND_NS))
        }
    }
}

/// The first second from which on a program gets its right word.
fn right_from(said: &[(u64, Option<Judgement>)], is_leaky: bool) -> String {
    let wrong = |said: &Option<Judgement>| match said {
        Some(said) => !said.confidence.is_enough() || said.is_leak() != is_leaky,
        None => is_leaky,
    };
    let last = said.iter().rposition(|(_, said)| wrong(said));
    let from = said.get(last.map_or(0, |last| last + 1));
    from.map_or("never".to_owned(), |(seconds, _)| format!("{seconds} s"))
}

/// The table of the documentation is what is said. `GPUPROBE_WRITE_GOLDEN` writes it.
#[test]
fn planted_causes_get_the_verdicts_that_are_documented() {
    const SHOWN_S: [u64; 5] = [10, 30, 60, 300, 3600];
    let mut table = vec![
        "| program | right from | after 10 s | 30 s | 60 s | 300 s | 3,600 s |".to_owned(),
        "|---|---|---|---|---|---|---|".to_owned(),
    ];
    for (leaks_after_s, program) in planted() {
        let name = &program.name;
        let watched_s: Vec<u64> = (1..=120)
            .chain((125..=300).step_by(5))
            .chain([3600])
            .collect();
        let said: Vec<_> = watched_s
            .iter()
            .copied()
            .zip(judged(&program, &watched_s))
            .collect();
        for (seconds, said) in &said {
            let is_leak = said.as_ref().is_some_and(Judgement::is_leak);
            let is_due = leaks_after_s.is_some_and(|after_s| after_s <= *seconds);
            assert!(is_leak || !is_due, "{name} after {seconds} s: {said:?}");
            assert!(
                !is_leak || leaks_after_s.is_some(),
                "{name} after {seconds} s: {said:?}"
            );
        }
        let right = right_from(&said, leaks_after_s.is_some());
        let shown = said.iter().filter(|(seconds, _)| SHOWN_S.contains(seconds));
        let words: Vec<_> = shown.map(|(_, said)| in_a_word(said.as_ref())).collect();
        table.push(format!("| {name} | {right} | {} |", words.join(" | ")));
    }
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/development/verdicts.md"
    );
    let text = std::fs::read_to_string(path).unwrap();
    let (begin, end) = ("<!-- planted: begin -->\n\n", "\n\n<!-- planted: end -->");
    let (head, rest) = text.split_once(begin).unwrap();
    let (documented, tail) = rest.split_once(end).unwrap();
    if std::env::var_os("GPUPROBE_WRITE_GOLDEN").is_some() {
        let table = table.join("\n");
        std::fs::write(path, format!("{head}{begin}{table}{end}{tail}")).unwrap();
        return;
    }
    assert_eq!(documented.lines().collect::<Vec<_>>(), table);
}
