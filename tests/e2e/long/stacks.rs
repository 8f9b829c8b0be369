//! Thousands of new call paths.

use crate::stacks::paths::{are_named, new_paths_are_whole};

#[test]
fn root_six_thousand_in_a_moment_are_whole() {
    // More than are copied a second in the long run. The ring has room for those of either step.
    new_paths_are_whole(&[12, 11], false);
}

#[test]
fn root_more_than_the_ring_holds_are_whole_while_the_event_loop_is_busy() {
    new_paths_are_whole(&[12, 11, 10], true);
}

#[test]
fn root_call_paths_are_named_by_perf_events() {
    are_named(&["paths_bare"], &["--attach", "perf"]);
}
