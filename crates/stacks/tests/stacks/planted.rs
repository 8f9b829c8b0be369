//! Programs whose symbols and debugging information are made to harm who reads them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpuprobe_model::stack::Frame;
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use crate::harness::{Build, Stopped, World, folder, run};

/// The program whose functions have these names.
fn named(folder: &Path, outer: &str, inner: &str) -> PathBuf {
    let names = [format!("-DOUTER={outer}"), format!("-DINNER={inner}")];
    let build = Build {
        source: "named.c",
        flags: &["-O2", "-g", "-gdwarf-4", &names[0], &names[1]],
        is_stripped: false,
    };
    build.put(folder)
}

fn frames(program: &Path) -> Vec<Frame> {
    let process = Stopped::start(program, &[]);
    let mut world = World::new();
    world.spaces.refresh(process.pid());
    let (unwound, _) = world.stack(&process, 1 << 16);
    world.frames(process.pid(), &unwound.stack)
}

/// Pairs of two of the pair before: a short name that stands for 2^30 words.
fn bomb(function: char) -> String {
    let digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ".chars();
    let pairs = digits.take(30).map(|n| format!("S_IS{n}_S{n}_E"));
    format!("_Z1{function}St4pairIiiE{}", pairs.collect::<String>())
}

#[test]
fn names_that_stand_for_gigabytes_are_cut() {
    let folder = folder();
    let frames = frames(&named(folder.path(), &bomb('f'), &bomb('g')));
    for (function, inlined) in [("f", false), ("g", true)] {
        let begin = format!("{function}(std::pair<int, int>, std::pair<std::pair<int, int>");
        let is_it = |frame: &&Frame| frame.function.starts_with(&begin);
        let frame = frames.iter().find(is_it).expect("it has its name");
        assert!(frame.function.len() <= 4096 && frame.function.ends_with("..."));
        assert_eq!(frame.inlined, inlined);
        assert!(frame.line.is_some());
    }
}

/// A device of nobody's, that is watched.
struct Device {
    path: PathBuf,
    watch: Inotify,
}

impl Device {
    /// None without root.
    fn put(folder: &Path) -> Option<Self> {
        let path = folder.join("device");
        let made = mknod(&path, SFlag::S_IFCHR, Mode::S_IRWXU, makedev(1, 3));
        if made.is_err() {
            eprintln!("NOT TESTED without root");
            return None;
        }
        let watch = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
        watch.add_watch(&path, AddWatchFlags::IN_OPEN).unwrap();
        Some(Self { path, watch })
    }

    fn was_opened(&self) -> bool {
        self.watch.read_events().err() != Some(Errno::EAGAIN)
    }
}

fn objcopy(program: &Path, arguments: &[&str]) {
    run(Command::new("objcopy").args(arguments).arg(program));
}

#[test]
fn links_to_devices_are_not_followed() {
    let folder = folder();
    let folder = folder.path();
    let Some(device) = Device::put(folder) else {
        return;
    };
    let of_frames = |program: &Path| {
        let frames = frames(program);
        let names: Vec<_> = frames.iter().map(|frame| frame.function.clone()).collect();
        assert!(names.contains(&"outer".to_owned()), "{names:?}");
        assert!(!device.was_opened());
        frames
    };
    let program = named(folder, "outer", "inner");
    let has_lines = |frames: &[Frame]| frames.iter().any(|frame| frame.line.is_some());
    assert!(has_lines(&of_frames(&program)));
    // What is shared with others, which nothing but the distribution's own folder may hold.
    let link = folder.join("link");
    let mut bytes = device.path.to_str().unwrap().as_bytes().to_vec();
    bytes.resize(bytes.len() + 21, 0);
    fs::write(&link, bytes).unwrap();
    let section = format!(".gnu_debugaltlink={}", link.display());
    objcopy(&program, &["--add-section", &section]);
    of_frames(&program);
    // The debugging information itself.
    let program = named(folder, "outer", "inner");
    let debug = folder.join("x.debug");
    fs::write(&debug, "any").unwrap();
    let link = format!("--add-gnu-debuglink={}", debug.display());
    objcopy(&program, &["--remove-section", ".note.gnu.build-id", &link]);
    fs::remove_file(&debug).unwrap();
    symlink(&device.path, &debug).unwrap();
    of_frames(&program);
    // A FIFO would have us wait.
    fs::remove_file(&debug).unwrap();
    nix::unistd::mkfifo(&debug, Mode::S_IRWXU).unwrap();
    of_frames(&program);
}
