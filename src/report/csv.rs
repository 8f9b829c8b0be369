//! One row per live allocation and report.

use std::io::{self, Write};

use super::{Report, Writer};
use crate::clock;

const HEADER: [&str; 14] = [
    "report_time",
    "final",
    "pid",
    "uid",
    "comm",
    "exited",
    "tid",
    "thread",
    "address",
    "bytes",
    "device",
    "kind",
    "api",
    "time",
];

#[derive(Default)]
pub(super) struct Csv {
    header_written: bool,
}

impl Writer for Csv {
    fn write(&mut self, report: &Report, out: &mut dyn Write) -> io::Result<()> {
        let mut rows = csv::Writer::from_writer(out);
        if !self.header_written {
            rows.write_record(HEADER)?;
            self.header_written = true;
        }
        let report_time = clock::rfc3339_seconds(&report.time);
        let is_final = report.is_final.to_string();
        let number = |n: Option<u32>| n.map(|n| n.to_string()).unwrap_or_default();
        for process in &report.memleak.processes {
            let process_fields = [
                process.pid.to_string(),
                number(process.uid),
                process.comm.clone().unwrap_or_default(),
                process.exited.to_string(),
            ];
            for thread in &process.threads {
                let thread_fields = [
                    thread.tid.to_string(),
                    thread.comm.clone().unwrap_or_default(),
                ];
                for allocation in &thread.allocations {
                    let fields = [
                        format!("{:#x}", allocation.address),
                        allocation.bytes.to_string(),
                        number(allocation.device.map(u32::from)),
                        allocation.kind.to_owned(),
                        allocation.api.to_owned(),
                        clock::rfc3339_micros(&allocation.time),
                    ];
                    let report_fields = [&report_time, &is_final].into_iter();
                    rows.write_record(
                        report_fields
                            .chain(&process_fields)
                            .chain(&thread_fields)
                            .chain(&fields),
                    )?;
                }
            }
        }
        rows.flush()
    }
}
