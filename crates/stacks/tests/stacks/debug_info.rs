//! Malicious symbol names.

use std::path::{Path, PathBuf};

use gpuprobe_model::stack::Frame;

use crate::harness::{Build, Stopped, World, folder};

/// The program whose functions have these names.
fn named(folder: &Path, outer: &str, inner: &str) -> PathBuf {
    let names = [format!("-DOUTER={outer}"), format!("-DINNER={inner}")];
    let build = Build {
        source: "named.c",
        flags: &["-O2", "-g", "-gdwarf-4", &names[0], &names[1]],
        is_stripped: false,
    };
    build.put(folder)
}

fn frames(program: &Path) -> Vec<Frame> {
    let process = Stopped::start(program, &[]);
    let mut world = World::new();
    world.spaces.refresh(process.pid());
    let (unwound, _) = world.stack(&process, 1 << 16);
    world.frames(process.pid(), &unwound.stack)
}

/// Pairs of two of the pair before: a short name that stands for 2^30 words.
fn bomb(function: char) -> String {
    let digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ".chars();
    let pairs = digits.take(30).map(|n| format!("S_IS{n}_S{n}_E"));
    format!("_Z1{function}St4pairIiiE{}", pairs.collect::<String>())
}

#[test]
fn names_that_stand_for_gigabytes_are_cut() {
    let folder = folder();
    let frames = frames(&named(folder.path(), &bomb('f'), &bomb('g')));
    for (function, inlined) in [("f", false), ("g", true)] {
        let begin = format!("{function}(std::pair<int, int>, std::pair<std::pair<int, int>");
        let is_it = |frame: &&Frame| frame.function.starts_with(&begin);
        let frame = frames.iter().find(is_it).expect("it has its name");
        assert!(frame.function.len() <= 4096 && frame.function.ends_with("..."));
        assert_eq!(frame.inlined, inlined);
        assert!(frame.line.is_some());
    }
}
