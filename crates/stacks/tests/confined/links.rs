//! Files that lead to others.

use std::fs;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use gpuprobe_model::stack::Frame;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::pty::{PtyMaster, grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::stat::Mode;

use crate::PLACE;
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
    let mut world = World::at(PLACE);
    world.spaces.refresh(process.pid());
    let (unwound, _) = world.stack(&process, 1 << 16);
    world.frames(process.pid(), &unwound.stack)
}

/// A device that is watched: a terminal, which any user can make.
struct Device {
    path: PathBuf,
    watch: Inotify,
    _master: PtyMaster,
}

impl Device {
    fn new() -> Self {
        let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let path = PathBuf::from(ptsname_r(&master).unwrap());
        assert!(fs::metadata(&path).unwrap().file_type().is_char_device());
        let watch = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
        watch.add_watch(&path, AddWatchFlags::IN_OPEN).unwrap();
        Self {
            path,
            watch,
            _master: master,
        }
    }

    fn was_opened(&self) -> bool {
        self.watch.read_events().err() != Some(Errno::EAGAIN)
    }
}

fn objcopy(program: &Path, arguments: &[&str]) {
    run(Command::new("objcopy").args(arguments).arg(program));
}

pub(crate) fn links_to_devices_are_not_followed() {
    let folder = folder();
    let folder = folder.path();
    let device = Device::new();
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
    // Had it been opened, it would have been noticed.
    fs::OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NOCTTY.bits())
        .open(&device.path)
        .unwrap();
    assert!(device.was_opened());
}
