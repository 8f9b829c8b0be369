//! Profiles of recordings and exports: their totals equal those of the analyses.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use gpuprobe_views::profile::pprof::proto::Proto;
use prost::Message;

use crate::scene::MIB;
use crate::{Folder, report, report_json};

pub(crate) struct Made {
    pub(crate) folded: Vec<(String, u64)>,
    pub(crate) svg: String,
    pub(crate) proto: Proto,
}

pub(crate) fn made(folder: &Folder, file: &Path, arguments: &[&str]) -> Made {
    let path = |name| folder.path(name).to_str().unwrap().to_owned();
    let [folded, svg, pprof] = [path("folded"), path("out.svg"), path("out.pb.gz")];
    let files = ["--folded", &folded, "--flamegraph", &svg, "--pprof", &pprof];
    assert_eq!(report(file, &[&files[..], arguments].concat()), "");
    let folded = fs::read_to_string(folded).unwrap();
    let line = |line: &str| {
        let (stack, bytes) = line.rsplit_once(' ').unwrap();
        (stack.to_owned(), bytes.parse().unwrap())
    };
    let mut bytes = Vec::new();
    let packed = fs::File::open(pprof).unwrap();
    GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
    Made {
        folded: folded.lines().map(line).collect(),
        svg: fs::read_to_string(svg).unwrap(),
        proto: Proto::decode(bytes.as_slice()).unwrap(),
    }
}

impl Made {
    fn total(&self) -> u64 {
        self.folded.iter().map(|(_, bytes)| bytes).sum()
    }

    fn value(&self, index: usize) -> u64 {
        let values = self.proto.sample.iter().map(|s| s.value[index]);
        u64::try_from(values.sum::<i64>()).unwrap()
    }

    /// Asserts the invariants of the pprof format.
    fn check(&self) {
        let proto = &self.proto;
        let text = |id: i64| proto.string_table[usize::try_from(id).unwrap()].as_str();
        assert_eq!(text(0), "");
        let types: Vec<_> = proto
            .sample_type
            .iter()
            .map(|t| (text(t.kind), text(t.unit)))
            .collect();
        let expected = [
            ("inuse_space", "bytes"),
            ("inuse_objects", "count"),
            ("alloc_space", "bytes"),
            ("alloc_objects", "count"),
        ];
        assert_eq!(types, expected);
        for (index, mapping) in proto.mapping.iter().enumerate() {
            assert_eq!(mapping.id, index as u64 + 1);
            assert_ne!(text(mapping.filename), "");
        }
        for (index, function) in proto.function.iter().enumerate() {
            assert_eq!(function.id, index as u64 + 1);
            assert_ne!(text(function.name), "");
        }
        for (index, location) in proto.location.iter().enumerate() {
            assert_eq!(location.id, index as u64 + 1);
            assert!(location.mapping_id <= proto.mapping.len() as u64);
            assert!(!location.line.is_empty());
            for line in &location.line {
                assert!((1..=proto.function.len() as u64).contains(&line.function_id));
            }
        }
        for sample in &proto.sample {
            assert_eq!(sample.value.len(), 4);
            let ids = 1..=proto.location.len() as u64;
            assert!(sample.location_id.iter().all(|id| ids.contains(id)));
            assert!(!sample.location_id.is_empty());
        }
        let digits = self.total().to_string();
        let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().collect();
        let groups = groups.iter().map(|g| std::str::from_utf8(g).unwrap());
        let total = groups.collect::<Vec<_>>().join(",");
        // Above the processes.
        let root = format!(" ({total} bytes, 100%)</title>");
        assert!(self.svg.contains(&root), "{root}");
    }

    /// Folded stacks: functions outermost first, with the process, and live bytes.
    fn in_use(&self) -> BTreeMap<String, u64> {
        let proto = &self.proto;
        let text = |id: i64| proto.string_table[usize::try_from(id).unwrap()].as_str();
        let mut stacks = BTreeMap::new();
        for sample in &proto.sample {
            let mut names = Vec::new();
            for id in &sample.location_id {
                let location = &proto.location[usize::try_from(id - 1).unwrap()];
                for line in &location.line {
                    let function = &proto.function[usize::try_from(line.function_id - 1).unwrap()];
                    names.push(text(function.name).replace(';', ":"));
                }
            }
            let mut labels = sample.label.iter();
            let process = labels.find(|label| text(label.key) == "process").unwrap();
            names.push(text(process.str).to_owned());
            names.reverse();
            if sample.value[0] > 0 {
                *stacks.entry(names.join(";")).or_insert(0) +=
                    u64::try_from(sample.value[0]).unwrap();
            }
        }
        stacks
    }
}

#[test]
fn profiles_have_the_totals_of_the_analyses() {
    let folder = Folder::new();
    for file in [folder.scene("stacks"), folder.real_export()] {
        for (weight, analysis) in [("end", "leakage"), ("peak", "watermark")] {
            let made = made(&folder, &file, &["--weight", weight]);
            made.check();
            let total = &report_json(&file, &["--analysis", analysis])["totals"]["total"];
            assert_eq!(total["bytes"], made.total());
            assert_eq!(total["bytes"], made.value(0));
            assert_eq!(total["allocations"], made.value(1));
        }
    }
}

#[test]
fn formats_have_the_same_stacks() {
    let folder = Folder::new();
    let file = folder.scene("stacks");
    made(&folder, &file, &["--weight", "total"]).check();
    let end = made(&folder, &file, &[]);
    assert_eq!((end.value(2), end.value(3)), (33 * MIB, 4));
    // Lines and inlined functions.
    let mut locations = end.proto.location.iter();
    let inlined = &locations.find(|l| l.line.len() == 2).unwrap().line;
    assert_eq!([inlined[0].line, inlined[1].line], [17, 42]);
    assert_eq!(end.in_use(), end.folded.into_iter().collect());
}
