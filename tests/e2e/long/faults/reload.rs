//! Libraries that are unloaded and loaded again.

use super::Programs;
use crate::harness::Setup;
use crate::harness::report::Totals;

#[test]
fn root_reloaded_library_is_counted_each_time() {
    const TIMES: u64 = 20;
    let programs = Programs::built(&["reload.c"]);
    for kind in ["session", "perf"] {
        let words = ["reload", "libcudart.so.12"].map(|name| programs.text(name));
        let mut gpuprobe = Setup::command(words.into_iter().chain([TIMES.to_string()]))
            .args(["--attach", kind])
            .start();
        assert_eq!(gpuprobe.exit_code(), 0);
        let printed = gpuprobe.talk.to_end();
        let places = printed[0].strip_prefix("places ").unwrap();
        assert!(places.parse::<u64>().unwrap() > 1, "it moved: {places}");
        gpuprobe.final_report().assert_totals(Totals {
            alloc_calls: 3 * TIMES,
            free_calls: 3 * TIMES,
            ..Totals::default()
        });
    }
}
