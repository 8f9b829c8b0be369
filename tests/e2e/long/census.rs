//! A leak in a census.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::Setup;
use crate::harness::report::list;
use crate::tensors::{pytorch, running};

#[test]
fn root_a_leak_of_one_tensor_a_step_is_called_at_its_line_within_a_minute() {
    let mut workload = running(&[("STANDIN_TORCH_BLOCKS", "9")]);
    let pid = workload.pid;
    workload.play("tmalloc old 30000 20; tleak forward 10 512");
    let setup = Setup::everything().args(["--comm", "torchlike"]);
    let gpuprobe = setup.interval("2s").start();
    let begun = Instant::now();
    loop {
        let report = gpuprobe.next_report_while(|| {
            workload.play("tmalloc passing 512 3; tleak optimizer 1 512; sleep 0.2; tfree passing");
        });
        let sites = list(&pytorch(&report, pid)[0], "sites").iter();
        let growing: Vec<&Value> = sites.filter(|site| site["verdict"] == "growing").collect();
        if let [site] = growing[..] {
            let mut stack = list(site, "stack").iter();
            assert!(
                stack.any(|frame| frame["function"] == "leak_optimizer"),
                "{site:#}"
            );
            break;
        }
        assert_eq!(growing.len(), 0);
        assert!(begun.elapsed() < Duration::from_secs(66), "{report:?}");
    }
}
