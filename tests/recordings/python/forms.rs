//! Python frames in each output format.

use std::fs;
use std::io::Read;

use flate2::read::GzDecoder;
use gpuprobe_report::profile::pprof::proto::Proto;
use prost::Message;
use rusqlite::Connection;
use serde_json::{Value, json};

use super::scene::{PythonScene, STEP, SceneFrame};
use super::{MIB, folder, leakage, replayed, sites};
use crate::replay::replay;
use crate::{Folder, gpuprobe, report};

fn step() -> Value {
    json!({
        "function": "training_step", "file": "/home/ada/train.py", "line": 41, "module": null,
        "source": "loss = model(x, labels=x).loss", "address": "0x0", "language": "python",
        "inlined": false,
    })
}

#[test]
fn json_has_all_frames_in_order() {
    let folder = folder();
    for report in [
        replayed(&folder, &["--full-stacks"]),
        leakage(&folder, &["--full-stacks"]),
    ] {
        let stack = sites(&report)[0]["stack"].as_array().unwrap();
        assert_eq!(stack[0]["function"], "cudaMalloc");
        // Innermost first: a library's line, its caller, and so on to the user's.
        assert_eq!(stack[5]["function"], "Function.apply");
        assert_eq!(stack[6]["function"], "_PyEval_EvalFrameDefault");
        let place = stack.iter().position(|frame| *frame == step()).unwrap();
        assert_eq!(stack[place + 2]["function"], "<module>");
        assert_eq!(stack.len(), 5 + 2 * 31 + 3 + 3);
        let marker = sites(&report)[3]["stack"]
            .as_array()
            .unwrap()
            .last()
            .unwrap();
        assert_eq!(marker["function"], "[cut: 128 Python frames]");
        let (file, module) = (&marker["file"], &marker["module"]);
        assert_eq!((file, module), (&Value::Null, &Value::Null));
    }
    let native = replayed(&folder, &["--stacks-native"]);
    let frames = sites(&native)
        .iter()
        .flat_map(|site| site["stack"].as_array().unwrap());
    assert!(
        frames
            .into_iter()
            .all(|frame| frame["language"] == "native")
    );
}

#[test]
fn tables_have_lines() {
    let folder = folder();
    let file = folder.path("python.sqlite");
    let csv = replay(&file, &["--last", "--format", "csv"]);
    let lines = "training_step (train.py:41);_PyEval_EvalFrameDefault;<module> (train.py:63);main";
    assert!(csv.contains(lines), "{csv}");
    let tsv = report(&file, &["--analysis", "leakage", "--format", "tsv"]);
    let lines = "[training_step] (/home/ada/train.py:41) -> [_PyEval_EvalFrameDefault] ";
    assert!(tsv.contains(lines), "{tsv}");
    let tables = folder.path("tables");
    report(&file, &["--export-tsv", tables.to_str().unwrap()]);
    let valid = fs::read_to_string(tables.join("valid.tsv")).unwrap();
    assert!(
        valid.contains("[training_step] (/home/ada/train.py) -> "),
        "{valid}"
    );
}

#[test]
fn recordings_have_the_file_as_the_module() {
    let folder = folder();
    let connection = Connection::open(folder.path("python.sqlite")).unwrap();
    let text = |sql: &str| -> String { connection.query_row(sql, [], |row| row.get(0)).unwrap() };
    let of_step = "FROM CUDA_CALLCHAINS c JOIN StringIds s ON s.id = c.symbol \
                   JOIN StringIds m ON m.id = c.module \
                   JOIN GPUPROBE_FRAMES f ON f.chain = c.id AND f.depth = c.stackDepth \
                   JOIN StringIds l ON l.id = f.language LEFT JOIN StringIds t ON t.id = f.source \
                   WHERE s.value";
    let row = "SELECT m.value || '|' || l.value || '|' || f.line || '|' || t.value";
    assert_eq!(
        text(&format!("{row} {of_step} = 'training_step' LIMIT 1")),
        "/home/ada/train.py|python|41|loss = model(x, labels=x).loss"
    );
    let marker = format!("SELECT m.value || l.value {of_step} LIKE '[cut%' LIMIT 1");
    assert_eq!(text(&marker), "[python]python");
}

/// Recordings of older versions have neither language nor source.
#[test]
fn older_recordings_are_read() {
    let folder = folder();
    let file = folder.path("python.sqlite");
    let connection = Connection::open(&file).unwrap();
    let drop = "ALTER TABLE GPUPROBE_FRAMES DROP COLUMN language; \
                ALTER TABLE GPUPROBE_FRAMES DROP COLUMN source;";
    connection.execute_batch(drop).unwrap();
    connection.close().unwrap();
    let report = leakage(&folder, &["--group"]);
    let first = &sites(&report)[0];
    assert_eq!(first["label"], "train.py:41 training_step > cudaMalloc");
    let mut expected = step();
    expected.as_object_mut().unwrap().remove("source");
    assert!(first["stack"].as_array().unwrap().contains(&expected));
}

/// The folded stacks, the plot and the message of a file.
fn profiles(folder: &Folder, arguments: &[&str]) -> (String, String, Proto) {
    let path = |name: &str| folder.path(name).to_str().unwrap().to_owned();
    let [folded, svg, pprof] = ["folded", "flames.svg", "profile.pb.gz"].map(path);
    let files = ["--folded", &folded, "--flamegraph", &svg, "--pprof", &pprof];
    report(
        &folder.path("python.sqlite"),
        &[&files[..], arguments].concat(),
    );
    let mut bytes = Vec::new();
    let packed = fs::File::open(pprof).unwrap();
    GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
    let [folded, svg] = [folded, svg].map(|path| fs::read_to_string(path).unwrap());
    (folded, svg, Proto::decode(bytes.as_slice()).unwrap())
}

#[test]
fn profiles_have_lines_and_no_interpreter() {
    let folder = folder();
    let (folded, svg, proto) = profiles(&folder, &[]);
    let begins = "python3;<module> (train.py:63);training_step (train.py:41);\
                  GPT2Model.forward (modeling_gpt2.py:130);";
    let lines: Vec<_> = folded
        .lines()
        .filter(|line| line.starts_with(begins))
        .collect();
    assert_eq!(lines.len(), 2, "{folded}");
    for interpreter in [
        "_PyEval",
        "ffi_call",
        "_call_function_pointer",
        "__libc_start_call_main",
    ] {
        assert!(
            !folded.contains(interpreter) && !svg.contains(interpreter),
            "{interpreter}"
        );
    }
    let sum: u64 = folded
        .lines()
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
        .sum();
    assert_eq!(sum, 1392 * MIB);
    // A hostile name is one frame: without a number at its end or a separator.
    assert!(
        folded.contains(";\\u{1b}]0:x\\u{7}: name 7 (a b:c d.py:9);"),
        "{folded}"
    );
    assert!(
        svg.contains("<title>training_step (train.py:41) (5"),
        "{svg}"
    );
    let legend = &svg[svg.find("id=\"layers\"").unwrap()..];
    assert!(
        legend.contains(">Python<") && !legend.contains(">interpreter<"),
        "{legend}"
    );
    check_pprof(&proto);
    let (folded, svg, _) = profiles(&folder, &["--full-stacks"]);
    assert!(folded.contains(";_PyEval_EvalFrameDefault;"), "{folded}");
    assert!(svg[svg.find("id=\"layers\"").unwrap()..].contains(">interpreter<"));
}

fn check_pprof(proto: &Proto) {
    let text = |id: i64| proto.string_table[usize::try_from(id).unwrap()].as_str();
    let find = |name: &str| {
        proto
            .function
            .iter()
            .find(|function| text(function.name) == name)
    };
    let function = find("training_step").unwrap();
    assert_eq!(text(function.filename), "/home/ada/train.py");
    let here =
        |line: &gpuprobe_report::profile::pprof::proto::PprofLine| line.function_id == function.id;
    let locations = proto
        .location
        .iter()
        .filter(|location| location.line.iter().any(here));
    let locations: Vec<_> = locations.collect();
    // One line is one location, though it has no address.
    assert_eq!(locations.len(), 1);
    assert_eq!(
        (locations[0].mapping_id, locations[0].line[0].line),
        (0, 41)
    );
    let lines = proto
        .location
        .iter()
        .filter(|location| location.address == 0 && location.mapping_id == 0);
    let visits = find("Tree.grow.<locals>.visit").unwrap().id;
    let visits = lines
        .filter(|location| location.line[0].function_id == visits)
        .count();
    assert_eq!(visits, 38, "lines of one function are places of their own");
}

#[test]
fn traces_have_lines() {
    let folder = folder();
    let (file, out) = (folder.path("python.sqlite"), folder.path("trace.json"));
    let words = [
        "export",
        file.to_str().unwrap(),
        "--output",
        out.to_str().unwrap(),
    ];
    let done = gpuprobe(&words);
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let trace = fs::read_to_string(out).unwrap();
    assert!(
        trace.contains("\"training_step (train.py:41)\""),
        "{}",
        &trace[..2000]
    );
}

/// The text of a site's stack by its number.
fn shown(folder: &Folder, arguments: &[&str]) -> Vec<String> {
    let file = folder.path("python.sqlite");
    let text = replay(&file, &[&["--last"], arguments].concat());
    let lines = text
        .lines()
        .filter(|line| line.starts_with("      ") && !line.contains("ADDRESS"));
    lines.map(|line| line.trim_start().to_owned()).collect()
}

#[test]
fn stacks_are_folded_whole_or_native() {
    let folder = folder();
    let folded = [
        "train.py:41  training_step  loss = model(x, labels=x).loss",
        "train.py:63  <module>       training_step(batch)",
        "… 31 library frames: transformers 14, torch.nn 9, torch.autograd 8",
        "libtorch_cuda: at::_ops::mul_Tensor::call  (1 more native stack)",
    ];
    assert_eq!(shown(&folder, &["--site", "0"]), folded);
    let whole = shown(&folder, &["--site", "0", "--full-stacks"]);
    assert_eq!(whole.len(), 5 + 2 * 31 + 3 + 3);
    let step = "training_step  /home/ada/train.py:41  (Python)  loss = model(x, labels=x).loss";
    assert_eq!(whole[5 + 2 * 31], step);
    let native = shown(&folder, &["--site", "0", "--stacks-native"]);
    assert!(
        native.iter().all(|line| !line.contains(".py")),
        "{native:?}"
    );
    assert_eq!(native[1], "mul_Tensor::call  (libtorch_cuda.so)");
    let few = shown(&folder, &["--site", "4", "--depth", "2"]);
    assert_eq!(few[2], "… 38 more user frames");
}

#[test]
fn site_listings_are_short() {
    let folder = folder();
    let file = folder.path("python.sqlite");
    for site in 0..=10 {
        let text = replay(&file, &["--last", "--site", &site.to_string()]);
        let listing = text
            .lines()
            .skip_while(|line| !line.trim_start().starts_with('#'));
        let listing = listing.take_while(|line| !line.starts_with("by "));
        assert!(listing.count() <= 12, "{text}");
    }
}

/// The source is recorded when it is known, and again when it is more exact.
#[test]
fn log_entries_have_lines() {
    let folder = Folder::new();
    let file = folder.path("python.sqlite");
    let mut scene = PythonScene::new(&file);
    let frames = [
        SceneFrame::Native("cudaMalloc", "/usr/lib/libcudart.so.12"),
        STEP,
    ];
    let number = scene.stack(&frames, true);
    scene.allocate("cudaMalloc", number, MIB, 2_000_000_000);
    scene.recorder.note(crate::scene::mark(
        34,
        false,
        true,
        crate::scene::usage(MIB),
    ));
    scene.recorder.finish();
    assert_eq!(sites(&replayed(&folder, &[]))[0]["stack"], json!([step()]));
}
