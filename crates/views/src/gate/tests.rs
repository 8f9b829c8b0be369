#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use quick_xml::Reader;
use quick_xml::events::Event;

use super::*;
use gpuprobe_model::stack::Frame;
use gpuprobe_report::gate::Excused;

fn leak(label: &str, bytes: u64) -> Leak {
    Leak {
        program: "train".to_owned(),
        pids: vec![7],
        api: "cudaMalloc".to_owned(),
        label: label.to_owned(),
        full_label: label.to_owned(),
        owner: "libx".to_owned(),
        amount: Total {
            bytes,
            allocations: 2,
        },
        stacks: 1,
        most_bytes: bytes,
        stack: vec![Frame {
            function: "grow<float>(\"]]>\u{1b}\u{0}&)".to_owned(),
            ..gpuprobe_model::stack::bare_frame(&gpuprobe_model::stack::Location::python(0))
        }],
        ..Leak::default()
    }
}

fn judgement(leaks: Vec<Leak>, tolerated_bytes: u64) -> GateReport {
    let mut leaked = Total::default();
    leaks.iter().for_each(|leak| leaked.merge(leak.amount));
    let mut result = GateReport {
        rules: vec!["native: never freed".to_owned()],
        leaks,
        leaked,
        tolerated_bytes,
        ..GateReport::default()
    };
    result.failed = result.fails();
    result
}

#[test]
fn more_than_is_tolerated_fails() {
    assert!(!judgement(Vec::new(), 0).failed);
    assert!(judgement(vec![leak("a", 1)], 0).failed);
    assert!(judgement(vec![leak("a", 0)], 0).failed);
    assert!(!judgement(vec![leak("a", 5), leak("b", 5)], 10).failed);
    assert!(judgement(vec![leak("a", 5), leak("b", 6)], 10).failed);
}

/// An element: its name and attributes.
type Element = (String, HashMap<String, String>);

/// The elements of a document with their attributes, and its text.
fn parsed(xml: &[u8]) -> (Vec<Element>, String) {
    let mut reader = Reader::from_reader(xml);
    let (mut elements, mut text) = (Vec::new(), String::new());
    loop {
        match reader.read_event().unwrap() {
            Event::Start(element) | Event::Empty(element) => {
                let name = String::from_utf8(element.name().as_ref().to_vec()).unwrap();
                let attributes = element.attributes().map(|attribute| {
                    let attribute = attribute.unwrap();
                    let key = String::from_utf8(attribute.key.as_ref().to_vec()).unwrap();
                    let value = String::from_utf8(attribute.value.to_vec()).unwrap();
                    (
                        key,
                        quick_xml::escape::unescape(&value).unwrap().into_owned(),
                    )
                });
                elements.push((name, attributes.collect()));
            }
            Event::Text(part) => text += &part.decode().unwrap(),
            Event::Eof => return (elements, text),
            _ => {}
        }
    }
}

fn written(judgement: &GateReport) -> Vec<u8> {
    let mut xml = Vec::new();
    write_junit(judgement, &mut xml).unwrap();
    xml
}

#[test]
fn each_leak_is_a_test_that_failed() {
    let leaks = vec![leak("a < \"b\" & c\u{7}", 4096), leak("d", 1), leak("d", 1)];
    let xml = written(&judgement(leaks, 0));
    let (elements, _) = parsed(&xml);
    let names: Vec<_> = elements.iter().map(|(name, _)| name.as_str()).collect();
    let case = ["testcase", "failure"];
    let suite = ["testsuites", "testsuite", "properties", "property"];
    let expected = [&suite[..], &case, &case, &case].concat();
    assert_eq!(names, expected);
    let suite = &elements[1].1;
    assert_eq!(
        (&*suite["name"], &*suite["tests"], &*suite["failures"]),
        ("gpuprobe", "3", "3")
    );
    let named = |index: usize| elements[index].1["name"].as_str();
    assert_eq!(
        [named(4), named(6), named(8)],
        ["a < \"b\" & c", "d", "d (2)"]
    );
    assert_eq!(
        elements[5].1["message"],
        "4.00 KiB in 2 allocations never freed"
    );
    // What XML cannot have is not there, however it is written.
    let text = String::from_utf8(xml).unwrap();
    assert!(
        text.contains("grow&lt;float&gt;(") && !text.contains("]]>"),
        "{text}"
    );
    assert!(
        text.chars().all(|c| c == '\n' || !c.is_control()),
        "{text:?}"
    );
    assert!(!text.contains("&#"), "{text}");
}

#[test]
fn a_run_without_leaks_is_one_test_that_passed() {
    let (elements, _) = parsed(&written(&judgement(Vec::new(), 0)));
    let (name, case) = &elements[4];
    assert_eq!(
        (name.as_str(), case["name"].as_str()),
        ("testcase", "no leaks")
    );
    assert_eq!((elements.len(), &*elements[1].1["failures"]), (5, "0"));
    assert_eq!(elements[3].1["value"], "native: never freed");
}

/// Leaks of which one is excused.
fn excused() -> GateReport {
    let one = |why: &str, call_stacks, bytes| Excused {
        why: why.to_owned(),
        call_stacks,
        amount: Total {
            bytes,
            allocations: 1,
        },
        sites: vec![leak("b", bytes)],
    };
    GateReport {
        excused: vec![
            one("suppressed (workspace)", 3, 2048),
            one("too early", 1, 5),
        ],
        ..judgement(vec![leak("a", 4096)], 0)
    }
}

#[test]
fn what_is_excused_or_tolerated_is_skipped() {
    let tolerated = judgement(vec![leak("a", 5)], 10);
    for (result, counts, expected) in [
        (
            excused(),
            ["3", "1", "2"],
            "2.00 KiB in 2 allocations, suppressed (workspace)",
        ),
        (
            tolerated,
            ["1", "0", "1"],
            "5 B in 2 allocations, 10 B tolerated",
        ),
    ] {
        let (elements, _) = parsed(&written(&result));
        let suite = &elements[1].1;
        assert_eq!(
            ["tests", "failures", "skipped"].map(|name| &*suite[name]),
            counts
        );
        let (_, skipped) = elements.iter().find(|(name, _)| name == "skipped").unwrap();
        assert_eq!(skipped["message"], expected);
    }
}

#[test]
fn what_is_no_leak_is_said_by_reason() {
    let mut result = excused();
    result.leaks[0].growth = Some("growing 1.00 KiB/s for 14s".to_owned());
    let expected = [
        "leaked: 4.00 KiB in 2 allocations at 1 call site (native: never freed)",
        "  growing 1.00 KiB/s for 14s  a  (libx, train pid 7)",
        "no leak: 2.00 KiB at 3 call stacks, suppressed (workspace)",
        "not judged: 5 B at 1 call stack, too early",
    ];
    assert_eq!(lines(&result), expected);
}
