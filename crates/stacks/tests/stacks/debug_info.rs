//! Malicious symbol names.

use gpuprobe_model::stack::Frame;
use gpuprobe_stacks::program::ON_THREADS;

use crate::harness::{folder, frames_of, named};

/// Each pair contains the one before twice: a short name that expands to 2^30 words.
fn bomb(function: char) -> String {
    let digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ".chars();
    let pairs = digits.take(30).map(|n| format!("S_IS{n}_S{n}_E"));
    format!("_Z1{function}St4pairIiiE{}", pairs.collect::<String>())
}

#[test]
fn names_that_stand_for_gigabytes_are_cut() {
    let folder = folder();
    let frames = frames_of(&named(folder.path(), &bomb('f'), &bomb('g')), ON_THREADS);
    for (function, inlined) in [("f", false), ("g", true)] {
        let begin = format!("{function}(std::pair<int, int>, std::pair<std::pair<int, int>");
        let is_it = |frame: &&Frame| frame.function.starts_with(&begin);
        let frame = frames.iter().find(is_it).expect("it has its name");
        assert!(frame.function.len() <= 4096 && frame.function.ends_with("..."));
        assert_eq!(frame.inlined, inlined);
        assert!(frame.line.is_some());
    }
}
