//! Python frames in profiles, and the call sites of lines.

pub(crate) mod scene;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::profiles::{Made, made};
use crate::replay::last;
use crate::scene::MIB;
use crate::{Folder, report_json, sites};

/// The sites of the last replayed report, and those from the tables.
fn both(file: &Path, group: &[&str]) -> [Vec<Value>; 2] {
    let leakage = [&["--analysis", "leakage", "--host"], group].concat();
    [last(file, group), report_json(file, &leakage)].map(|report| sites(&report))
}

/// The sum over all sites.
fn sum(sites: &[Value], key: &str) -> i64 {
    sites.iter().map(|site| site[key].as_i64().unwrap()).sum()
}

#[test]
fn a_line_of_the_user_is_one_site() {
    let folder = Folder::new();
    let file = folder.scene("python");
    let grouped = both(&file, &[]);
    for (together, apart) in grouped
        .iter()
        .zip(both(&file, &["--group", "native-stack"]))
    {
        assert_eq!((together.len(), apart.len()), (9, 10));
        // The exact peak of several stacks is unknown.
        let single = |site: &Value| site["variants"] == 1 && site["peak_bytes"].is_u64();
        assert!(together[1..].iter().chain(&apart).all(single));
        for key in ["live_bytes", "live_allocations", "host_bytes"] {
            assert_eq!(sum(together, key), sum(&apart, key), "{key}");
        }
        // The freed variant is a part of the site, and no site of its own.
        let freed = 256 << 20;
        let allocated = sum(&apart, "alloc_bytes") + freed;
        assert_eq!(sum(together, "alloc_bytes"), allocated);
        assert_eq!(sum(together, "freed_bytes"), freed);
        // Host memory at the same lines is another site.
        let is_pinned = |site: &&Value| site["kinds"] == json!(["pinned"]);
        let pinned = together.iter().find(is_pinned).unwrap();
        assert_eq!(pinned["host_bytes"], 64 * MIB);
    }
}

#[test]
fn tables_have_the_sites_of_the_replay() {
    let folder = Folder::new();
    let file = folder.scene("python");
    for group in [&[][..], &["--group", "native-stack"]] {
        let [live, of_file] = both(&file, group).map(|sites| {
            let shown = |site: Value| {
                let keys = "id api variants live_bytes peak_bytes complete stack";
                let values = keys.split(' ').map(|key| site[key].to_string());
                // Tables contain no tabs or newlines within fields.
                let all = values.collect::<Vec<_>>().join(" ");
                all.replace("\\t", " ").replace("\\n", " ")
            };
            sites.into_iter().map(shown).collect::<BTreeSet<_>>()
        });
        assert_eq!(live, of_file);
    }
}

#[test]
fn profiles_have_lines_and_no_interpreter() {
    let folder = Folder::new();
    let file = folder.scene("python");
    let Made { folded, svg, proto } = made(&folder, &file, &[]);
    let begins = "python3;<module> (train.py:63);training_step (train.py:41);\
                  GPT2Model.forward (modeling_gpt2.py:130);";
    let lines = folded.iter().filter(|(stack, _)| stack.starts_with(begins));
    assert_eq!(lines.count(), 2, "{folded:?}");
    let stacks: Vec<_> = folded.iter().map(|(stack, _)| stack.as_str()).collect();
    for interpreter in "_PyEval ffi_call _call_function_pointer __libc_start_call_main".split(' ') {
        let hidden = stacks.iter().all(|stack| !stack.contains(interpreter));
        assert!(hidden && !svg.contains(interpreter), "{interpreter}");
    }
    assert_eq!(
        folded.iter().map(|(_, bytes)| bytes).sum::<u64>(),
        1392 * MIB
    );
    // A hostile name is one frame: without a number at its end or a separator.
    let hostile = ";\\u{1b}]0:x\\u{7}:\\nname 7 (a\\tb:c d.py:9);";
    assert!(
        stacks.iter().any(|stack| stack.contains(hostile)),
        "{stacks:?}"
    );
    assert!(
        svg.contains("<title>training_step (train.py:41) (5"),
        "{svg}"
    );

    let text = |id: i64| proto.string_table[usize::try_from(id).unwrap()].as_str();
    let function = |name: &str| {
        let mut functions = proto.function.iter();
        functions
            .find(|function| text(function.name) == name)
            .unwrap()
    };
    let at = |name: &str| {
        let id = function(name).id;
        let all = proto.location.iter();
        all.filter(move |one| one.line.iter().any(|line| line.function_id == id))
    };
    let step = function("training_step");
    assert_eq!(text(step.filename), "/home/ada/train.py");
    // One line is one location, though it has no address.
    let places = at("training_step").map(|one| (one.mapping_id, one.line[0].line));
    assert_eq!(places.collect::<Vec<_>>(), [(0, 41)]);
    let visits = at("Tree.grow.<locals>.visit").count();
    assert_eq!(visits, 38, "lines of one function are places of their own");

    let full = made(&folder, &file, &["--full-stacks"]);
    let has = |(stack, _): &(String, u64)| stack.contains(";_PyEval_EvalFrameDefault;");
    assert!(full.folded.iter().any(has), "{:?}", full.folded);
}
