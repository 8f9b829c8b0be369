//! Reading CUPTI's records, of any version, and what comes of them.
#![no_main]

use gpuprobe_collector::batch::Batch;
use gpuprobe_collector::cupti::Version;
use gpuprobe_collector::reduce::{Reducer, Surroundings};
use gpuprobe_collector::texts::Memory;

/// Texts that depend on nothing but their address; batches that can be read.
struct Around;

impl Memory for Around {
    fn read_text(&mut self, address: u64, text: &mut Vec<u8>) -> bool {
        text.clear();
        text.resize((address % 8192) as usize, address as u8);
        address % 3 != 0
    }
}

impl Surroundings for Around {
    fn callback_name(&mut self, _domain: u32, cbid: u32, name: &mut Vec<u8>) -> bool {
        self.read_text(cbid.into(), name)
    }

    fn clocks(&mut self) -> (u64, u64) {
        (0, 0)
    }

    fn send(&mut self, batch: &[u8]) {
        let batch = Batch::parse(batch).expect("what is sent can be read");
        let records = batch.records().map(|record| record.expect("so can its records"));
        assert_eq!(records.count(), batch.header.records as usize);
    }
}

libfuzzer_sys::fuzz_target!(|input: (u32, Vec<Vec<u8>>)| {
    let (number, records) = input;
    let Some(version) = Version::new(number) else {
        return;
    };
    let mut reducer = Reducer::new(version, 1, false);
    for record in &records {
        reducer.record(record, &mut Around);
    }
    reducer.end(&mut Around);
});
