//! Links to other files.

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
use crate::harness::{Build, folder, frames_of, named, run};

fn frames(program: &Path) -> Vec<Frame> {
    frames_of(program, PLACE)
}

/// A device with a watch on opens: a pseudo-terminal, which any user can create.
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

/// Whether the function has a line, by its name.
fn has_line(frames: &[Frame], function: &str) -> bool {
    assert!(frames.iter().all(|frame| !frame.function.is_empty()));
    let mut frames = frames.iter();
    frames.any(|frame| frame.function == function && frame.line.is_some())
}

/// The build id in a file.
fn build_id(file: &Path) -> Vec<u8> {
    let note = file.with_extension("note");
    let section = format!(".note.gnu.build-id={}", note.display());
    objcopy(file, &["--dump-section", &section]);
    // Behind the sizes, the type and the name.
    fs::read(note).unwrap().split_off(16)
}

/// A program, and the file that has the strings of its debugging information, as `dwz` leaves them.
fn with_supplement(folder: &Path, link: &str) -> (PathBuf, PathBuf) {
    let build = Build {
        source: "named.c",
        flags: &[
            "-O2",
            "-g",
            "-gdwarf-4",
            "-DOUTER=outer",
            "-DINNER=inner",
            "-S",
            "-dA",
        ],
        is_stripped: false,
    };
    let assembly = fs::read_to_string(build.put(folder)).unwrap();
    let of_supplement = |line: &str| match line.contains("(DW_FORM_strp)") {
        // DW_FORM_GNU_strp_alt
        true => "\t.uleb128 0x1f21\n".to_owned(),
        false => format!("{line}\n"),
    };
    let source = folder.join("named.s");
    let assembly: String = assembly.lines().map(of_supplement).collect();
    assert!(assembly.contains("0x1f21"));
    fs::write(&source, assembly).unwrap();
    let path = |name: &str| folder.join(name);
    let (program, supplement) = (path("program"), path("supplement"));
    let cc = |arguments: &[&str], output: &Path, source: &Path| {
        let mut command = Command::new("cc");
        let command = command.args(arguments).arg("-Wl,--build-id=sha1");
        run(command.arg("-o").arg(output).arg(source));
    };
    cc(&["-pthread"], &program, &source);
    let empty = path("empty.c");
    fs::write(&empty, "").unwrap();
    cc(&["-shared", "-nostdlib"], &supplement, &empty);
    let strings = path("strings");
    let section = format!(".debug_str={}", strings.display());
    objcopy(&program, &["--dump-section", &section]);
    objcopy(&supplement, &["--add-section", &section]);
    let mut bytes = [link.as_bytes(), b"\0"].concat();
    bytes.extend(build_id(&supplement));
    fs::write(path("link"), bytes).unwrap();
    let section = format!(".gnu_debugaltlink={}", path("link").display());
    objcopy(
        &program,
        &["--remove-section", ".debug_str", "--add-section", &section],
    );
    (program, supplement)
}

pub(crate) fn what_files_have_in_common_is_read() {
    let folder = folder();
    let folder = folder.path();
    // Then it has lines, but no names of what is inlined.
    let is_alone = |program: &Path| {
        let frames = frames(program);
        has_line(&frames, "outer") && !has_line(&frames, "inner")
    };
    fs::create_dir(folder.join("shared")).unwrap();
    let (program, supplement) = with_supplement(folder, "shared/x");
    assert!(is_alone(&program));
    fs::copy(&supplement, folder.join("shared/x")).unwrap();
    assert!(has_line(&frames(&program), "inner"));
    // At a path of its own; and one that is not the right one.
    let elsewhere = folder.join("elsewhere");
    let (program, supplement) = with_supplement(folder, elsewhere.to_str().unwrap());
    fs::copy(&supplement, &elsewhere).unwrap();
    assert!(has_line(&frames(&program), "inner"));
    fs::copy(&program, &elsewhere).unwrap();
    assert!(is_alone(&program));
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
    assert!(has_line(&of_frames(&program), "inner"));
    // A .gnu_debugaltlink: only the distribution's own folder may hold the target.
    let link = folder.join("link");
    let mut bytes = device.path.to_str().unwrap().as_bytes().to_vec();
    bytes.resize(bytes.len() + 21, 0);
    fs::write(&link, bytes).unwrap();
    let section = format!(".gnu_debugaltlink={}", link.display());
    objcopy(&program, &["--add-section", &section]);
    assert!(has_line(&of_frames(&program), "inner"));
    // A .gnu_debuglink to a link.
    let program = named(folder, "outer", "inner");
    let debug = folder.join("x.debug");
    fs::write(&debug, "any").unwrap();
    let link = format!("--add-gnu-debuglink={}", debug.display());
    objcopy(&program, &["--remove-section", ".note.gnu.build-id", &link]);
    fs::remove_file(&debug).unwrap();
    symlink(&device.path, &debug).unwrap();
    assert!(has_line(&of_frames(&program), "inner"));
    // Opening a FIFO would block.
    fs::remove_file(&debug).unwrap();
    nix::unistd::mkfifo(&debug, Mode::S_IRWXU).unwrap();
    assert!(has_line(&of_frames(&program), "inner"));
    // The watch works.
    fs::OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NOCTTY.bits())
        .open(&device.path)
        .unwrap();
    assert!(device.was_opened());
}
