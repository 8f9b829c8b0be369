//! Every memset function of the driver.

use super::{check, each_copy};
use crate::harness::{Backend, Workload};

#[test]
fn root_every_driver_memset_function_is_decoded() {
    let mut functions = Vec::new();
    for bits in [8, 16, 32] {
        for shape in ["", "2D"] {
            functions.push((format!("cuMemsetD{shape}{bits}_v2"), "_ptds"));
            functions.push((format!("cuMemsetD{shape}{bits}Async"), "_ptsz"));
        }
    }
    let mut workload = Workload::start(Backend::Driver);
    let mut expected = Vec::new();
    let (report, copies) = each_copy(&mut workload, &[], |workload| {
        for (number, (function, suffix)) in functions.iter().enumerate() {
            // Elements of every size, in two rows.
            let bytes = 4096 + 8 * number as u64;
            for twin in ["", suffix] {
                workload.say(&format!("set {bytes} 3 via={function}{twin}"));
                expected.extend([(function.as_str(), "set", "async", bytes); 3]);
            }
        }
    });
    assert_eq!(expected.len(), 72);
    check(&report, workload.pid, &copies, &expected);
    assert!(copies.iter().all(|copy| copy["source"].is_null()));
    assert_eq!(report["bandwidth_util"]["sets"], 72);
    assert_eq!(report["bandwidth_util"]["copies"], 0);
}
