//! Unwinding and symbolising known call paths.

use std::path::Path;

use crate::harness::{Build, Stopped, World, folder, run};

const C_PATH: [&str; 7] = ["leaf", "inner", "middle", "outer", "main", "libc", "_start"];

fn names(program: &Path, arguments: &[&str]) -> Vec<String> {
    World::new().names(&Stopped::start(program, arguments))
}

/// Replaces names of stripped functions (`PROGRAM+0xOFFSET`) by `?`.
fn unnamed(names: Vec<String>, program: &str) -> Vec<String> {
    let mark = format!("{program}+0x");
    let name = |name: String| {
        if name.starts_with(&mark) {
            "?".to_owned()
        } else {
            name
        }
    };
    names.into_iter().map(name).collect()
}

#[test]
fn c_with_and_without_frame_pointers() {
    for frame in ["-fomit-frame-pointer", "-fno-omit-frame-pointer"] {
        for position in [["-fPIE", "-pie"], ["-fno-pie", "-no-pie"]] {
            for level in ["-O0", "-O2"] {
                for is_stripped in [false, true] {
                    let flags = [frame, position[0], position[1], level];
                    let build = Build {
                        source: "chain.c",
                        flags: &flags,
                        is_stripped,
                    };
                    let folder = folder();
                    let names = names(&build.put(folder.path()), &[]);
                    let expected = if is_stripped {
                        ["?", "?", "?", "?", "?", "libc", "?"]
                    } else {
                        C_PATH
                    };
                    assert_eq!(unnamed(names, "chain"), expected, "{flags:?}");
                }
            }
        }
    }
}

/// In prologues, epilogues and PLT calls the stack is the same but for its innermost frames.
#[test]
fn at_every_instruction() {
    for flags in [
        ["-O2", "-fomit-frame-pointer"],
        ["-O0", "-fno-omit-frame-pointer"],
    ] {
        let build = Build {
            source: "chain.c",
            flags: &flags,
            is_stripped: false,
        };
        let folder = folder();
        let process = Stopped::start(&build.put(folder.path()), &[]);
        let mut world = World::new();
        let mut entries = 0;
        for step in 0..2000 {
            let (unwound, names) = world.stack(&process, 1 << 16);
            // While `outer` aligns its stack it keeps the old pointer in a register that is not part of a
            // copy, and gcc's tables are wrong there.
            if names[0] == "outer" && !unwound.stack.is_complete {
                assert!(
                    C_PATH[3..].starts_with(&names.iter().map(String::as_str).collect::<Vec<_>>())
                );
                assert!(process.step());
                continue;
            }
            assert!(
                unwound.stack.is_complete,
                "step {step} of {flags:?}: {names:?}"
            );
            let Some(start) = names.iter().position(|name| name == "main") else {
                break;
            };
            // A libc function called by the path, in its own code or the PLT.
            let own: Vec<_> = names[..=start].iter().map(String::as_str).collect();
            let is_own = |name: &&str| C_PATH.contains(name) && *name != "libc";
            let first = own.iter().position(is_own).unwrap();
            let is_outside = |name: &&str| *name == "libc" || name.contains("+0x");
            assert!(
                own[..first].iter().all(is_outside),
                "step {step} of {flags:?}: {names:?}"
            );
            let own = &own[first..];
            assert!(
                C_PATH[..5].ends_with(own),
                "step {step} of {flags:?}: {names:?}"
            );
            assert_eq!(names[start + 1..], ["libc", "_start"], "step {step}");
            entries += u32::from(names[0] == "leaf" && step > 20);
            assert!(process.step());
        }
        // The first call of `inner` has returned, and the second was seen from its beginning.
        assert!(entries > 0, "{flags:?}");
    }
}

#[test]
fn cpp_with_templates_and_inlined_functions() {
    let build = Build {
        source: "shapes.cpp",
        flags: &["-O2", "-g"],
        is_stripped: false,
    };
    let folder = folder();
    let program = build.put(folder.path());
    let process = Stopped::start(&program, &[]);
    let mut world = World::new();
    let names = world.names(&process);
    let expected = [
        "shapes::Square<float, 4>::area(int) const",
        "twice inlined",
        "both inlined",
        "measure(shapes::Shape const&)",
        "main::{lambda(int)#1}::operator()(int) const",
        "int shapes::apply<main::{lambda(int)#1}&>(main::{lambda(int)#1}&)",
        "main",
        "libc",
        "_start",
    ];
    assert_eq!(names, expected);
    let (unwound, _) = world.stack(&process, 1 << 16);
    let frames = world.frames(process.pid(), &unwound.stack);
    let source = std::fs::read_to_string("tests/stacks/programs/shapes.cpp").unwrap();
    let line_of = |text: &str| {
        let line = source.lines().position(|line| line.contains(text)).unwrap();
        u32::try_from(line + 1).ok()
    };
    let own = frames.iter().position(|frame| !frame.inlined).unwrap();
    let place = |index: usize| {
        (
            frames[own + index].file.clone().unwrap(),
            frames[own + index].line,
        )
    };
    assert!(place(1).0.ends_with("shapes.cpp"), "{:?}", place(1));
    assert_eq!(place(1).1, line_of("shape.area(1)"));
    assert_eq!(place(2).1, line_of("twice(shape) + sink"));
    assert_eq!(place(3).1, line_of("shapes::both(shape) + sink"));
}

/// Function names and lines from a separate debug file.
#[test]
fn separate_debug_files() {
    use std::process::Command;
    for id in ["-Wl,--build-id=sha1", "-Wl,--build-id=none"] {
        let build = Build {
            source: "shapes.cpp",
            flags: &["-O2", "-g", id],
            is_stripped: false,
        };
        let folder = folder();
        let program = build.put(folder.path());
        let debug = folder.path().join("shapes.debug");
        let mut objcopy = Command::new("objcopy");
        run(objcopy.arg("--only-keep-debug").arg(&program).arg(&debug));
        run(Command::new("strip").arg(&program));
        let names = unnamed(names(&program, &[]), "shapes");
        assert_eq!(names[..4], ["?", "?", "?", "?"]);
        let mut link = Command::new("objcopy");
        link.current_dir(folder.path());
        run(link.arg("--add-gnu-debuglink=shapes.debug").arg("shapes"));
        let names = self::names(&program, &[]);
        assert_eq!(names[1], "twice inlined", "{id}");
        // A debug file of another program is rejected.
        if id.ends_with("none") {
            std::fs::write(&debug, std::fs::read("/proc/self/exe").unwrap()).unwrap();
            let names = unnamed(self::names(&program, &[]), "shapes");
            assert_eq!(names[..4], ["?", "?", "?", "?"]);
        }
    }
}

#[test]
fn rust() {
    let build = Build {
        source: "chain.rs",
        flags: &["-O", "-g"],
        is_stripped: false,
    };
    let folder = folder();
    let names = names(&build.put(folder.path()), &[]);
    let expected = [
        "<chain::Linear<T> as chain::Layer>::forward",
        "chain::through inlined",
        "chain::train",
        "chain::main::{closure#0} inlined",
        "chain::apply",
        "chain::main",
    ];
    let simple = |name: &String| name.replace("{{closure}}", "{closure#0}");
    let names: Vec<_> = names.iter().map(simple).collect();
    assert_eq!(names[..6], expected);
    assert_eq!(names[names.len() - 3..], ["main", "libc", "_start"]);
}

#[test]
fn in_a_library_loaded_by_dlopen() {
    let folder = folder();
    let build = |source, flags: &[&str], is_stripped| {
        Build {
            source,
            flags,
            is_stripped,
        }
        .put(folder.path())
    };
    let host = build("host.c", &["-O2"], false);
    let flags = ["-O2", "-shared", "-fPIC", "-fvisibility=hidden"];
    for is_stripped in [false, true] {
        let plugin = build("plugin.c", &flags, is_stripped);
        let names = names(&host, &[plugin.to_str().unwrap()]);
        // Exported names survive stripping; a hidden function does not get its neighbour's name.
        let hidden = if is_stripped { "?" } else { "plugin_hidden" };
        let expected = [
            "called_back",
            hidden,
            "plugin_run",
            "main",
            "libc",
            "_start",
        ];
        assert_eq!(unnamed(names, "plugin"), expected);
    }
}
