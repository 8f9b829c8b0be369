//! Source lines around the line of a call site.

use std::fs;
use std::path::Path;

use super::{size, watch};
use crate::harness::{Backend, Workload};

#[test]
fn root_a_call_site_has_the_lines_of_its_source() {
    let mut workload = Workload::start(Backend::Shared);
    workload.say("freenull");
    let screen = watch(&workload, (120, 60), &[]);
    let pid = workload.pid.to_string();
    screen.line(&[&pid, "workload"]);
    workload.say("alloc 1048576 3");
    screen.line(&[&pid, &size(3 << 20)]);
    screen.press(&["Enter"]);
    let site = screen.line(&[&size(3 << 20), "workload.h:"]);
    let (_, place) = site.split_once("workload.h:").unwrap();
    let number: usize = place.split(' ').next().unwrap().parse().unwrap();
    screen.press(&["Enter"]);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standin/workload.h");
    let text = fs::read_to_string(file).unwrap();
    let lines: Vec<_> = text.lines().collect();
    for (number, mark) in [(number - 1, " "), (number, ">"), (number + 1, " ")] {
        let begin = format!("{mark} {number:>5}  ");
        screen.line(&[&begin, lines[number - 1].trim()]);
    }
}
