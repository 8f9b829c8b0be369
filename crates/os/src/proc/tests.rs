use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use super::*;

#[test]
fn mappings_of_a_process_that_exits_meanwhile_are_an_error() {
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let open = || File::open(format!("/proc/{}/maps", child.id())).unwrap();
    let (whole, ended) = (open(), open());
    let mut first = [0; 32];
    (&whole).read_exact(&mut first).unwrap();
    assert!(listed(&whole).unwrap().len() > 100);
    (&ended).read_exact(&mut first).unwrap();
    child.kill().unwrap();
    // It is a zombie: for a reaped process, the kernel returns an error.
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
    let error = listed(&ended).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    child.wait().unwrap();
}

#[test]
fn lines() {
    let maps = Mappings(
        b"7f00-7fff r-xp 00001000 fe:0a 4242                       /usr/lib/libc uda.so (deleted)\n\
          8000-9000 rw-p 00000000 00:00 0 \n\
          9000-a000 ---p 00000000 00:00 0                          [heap]\n\
          a000-b000 r--s 00000000 00:05 7                          /SYSV\xff\n\
          b000-c000 r--p 00000000 00:05 8                          [stack:\xe7\xb7\x9a\n\
          not a line\n\
          ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]\n"
            .to_vec(),
    );
    let all: Vec<_> = maps.iter().collect();
    let [library, anonymous, heap, odd, _, vsyscall] = all[..] else {
        panic!("{all:?}");
    };
    assert_eq!((library.start, library.end), (0x7f00, 0x7fff));
    assert!(library.is_readable && !library.is_writable && library.is_code);
    assert_eq!((library.offset, library.inode), (0x1000, 4242));
    assert_eq!(library.device, nix::sys::stat::makedev(0xfe, 0x0a));
    let path = Path::new("/usr/lib/libc uda.so (deleted)");
    assert_eq!(library.path(), Some(path));
    let path = Path::new("/usr/lib/libc uda.so");
    assert_eq!(library.path_without_mark(), Some(path));
    assert!(anonymous.path().is_none() && anonymous.is_writable);
    assert!(heap.path().is_none() && !heap.is_readable);
    // The kernel names System V shared memory like this, but the name here is that of an
    // ordinary file.
    assert_eq!(odd.path().unwrap().as_os_str().as_bytes(), b"/SYSV\xff");
    assert!(vsyscall.is_vsyscall() && vsyscall.is_code);
    assert_eq!(maps.at(0x8fff), Some(anonymous));
    assert_eq!(maps.at(0x7f00 - 1), None);
}

#[test]
fn own_mappings_are_read() {
    let maps = Mappings::of(std::process::id()).unwrap();
    let here = own_mappings_are_read as fn() as usize as u64;
    let mapping = maps.at(here).unwrap();
    assert!(mapping.is_code);
    let program = std::env::current_exe().unwrap();
    assert_eq!(mapping.path(), Some(program.as_path()));
    let absent = Mappings::of(u32::MAX).unwrap_err();
    assert_eq!(absent.kind(), ErrorKind::NotFound);
}

#[test]
fn long_files_are_truncated() {
    // The source is endless.
    assert_eq!(beginning(io::repeat(b'x'), 4096).unwrap().len(), 4096);
    let cut =
        Mappings(b"8000-9000 rw-p 00000000 00:00 0 \n9000-a000 rw-p 00000000 00:00 0 ".to_vec());
    assert_eq!(cut.iter().count(), 1);
}

#[test]
fn variables_and_words_of_a_process() {
    let long = "x".repeat(20_000);
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .env_clear()
        .envs([("BEFORE", long.as_str()), ("HERE", "a=b"), ("EMPTY", "")])
        .spawn()
        .unwrap();
    let names = ["HERE", "EMPTY", "BEFORE", "HER"].map(str::to_owned);
    let found = variables(child.id(), &names);
    let words = command_line(child.id());
    child.kill().unwrap();
    child.wait().unwrap();
    let set = |value: &str| Some(value.as_bytes().to_vec());
    assert_eq!(found.unwrap(), [set("a=b"), set(""), None, None]);
    assert_eq!(words.unwrap(), b"sleep\x0060\0");
    assert!(variables(u32::MAX, &names).is_err());
}

#[test]
fn only_exited_processes_are_gone() {
    let gone = status(u32::MAX).unwrap_err();
    assert!(is_gone(&gone));
    let error = |number| is_gone(&io::Error::from_raw_os_error(number));
    assert!(error(nix::libc::ESRCH));
    assert!(!error(nix::libc::EMFILE) && !error(nix::libc::EACCES));
}

#[test]
fn a_process_chooses_its_name() {
    let mut child = std::process::Command::new("/bin/sh")
        .args(["-c", r"printf '\377) Z 1 (\n' > /proc/$$/comm; read x"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let named = loop {
        let stat = stat(pid).unwrap();
        if stat.comm.ends_with('\n') {
            break stat;
        }
    };
    assert_eq!(
        (named.comm.as_str(), named.state),
        ("\u{fffd}) Z 1 (\n", named.state)
    );
    assert!(matches!(named.state, 'R' | 'S'), "{named:?}");
    assert_eq!(named.ppid, nix::unistd::getpid().as_raw());
    let status = status(pid).unwrap();
    assert_eq!(status.ruid, nix::unistd::getuid().as_raw());
    assert_eq!(
        inner_id(pid).unwrap(),
        u32::try_from(status.nspid.unwrap()[0]).unwrap_or(pid)
    );
    drop(child.stdin.take());
    child.wait().unwrap();
}
