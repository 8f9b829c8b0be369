//! A process that has stopped itself at a known function.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::libc::user_regs_struct;
use nix::sys::ptrace;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

const DEADLINE: Duration = Duration::from_secs(20);

/// A child process, killed on drop.
pub(crate) struct Stopped {
    child: Child,
    thread: Pid,
}

impl Stopped {
    /// Starts `program` and waits until all its threads are stopped.
    #[allow(clippy::zombie_processes)] // if it never stops, the test has failed anyhow
    pub(crate) fn start(program: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .process_group(0);
        let child = command.spawn().unwrap();
        let end = Instant::now() + DEADLINE;
        loop {
            let threads = threads(child.id());
            if !threads.is_empty() && threads.iter().all(|(_, state)| *state == 'T') {
                // The newest thread is the one under test.
                let thread = threads.last().unwrap().0;
                ptrace::attach(thread).unwrap();
                waitpid(thread, Some(nix::sys::wait::WaitPidFlag::__WALL)).unwrap();
                return Self { child, thread };
            }
            assert!(
                Instant::now() < end,
                "{} has not stopped",
                program.display()
            );
            sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn registers(&self) -> user_regs_struct {
        ptrace::getregs(self.thread).unwrap()
    }

    /// Executes one instruction. Returns whether the process still exists.
    pub(crate) fn step(&self) -> bool {
        ptrace::step(self.thread, None).unwrap();
        let status = waitpid(self.thread, Some(nix::sys::wait::WaitPidFlag::__WALL)).unwrap();
        matches!(status, nix::sys::wait::WaitStatus::Stopped(..))
    }

    /// Up to `size` bytes from `address`.
    pub(crate) fn stack(&self, address: u64, size: usize) -> Vec<u8> {
        let memory = File::open(format!("/proc/{}/mem", self.pid())).unwrap();
        let mut bytes = vec![0; size];
        let mut done = 0;
        while done < size {
            let at = address + u64::try_from(done).unwrap();
            // Page by page, up to the end of the stack.
            let page = usize::try_from(4096 - at % 4096).unwrap().min(size - done);
            match memory.read_at(&mut bytes[done..done + page], at) {
                Ok(read) if read > 0 => done += read,
                _ => break,
            }
        }
        bytes.truncate(done);
        bytes
    }

    /// Kills the process and waits for its end.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        if self.thread.as_raw().cast_unsigned() != self.pid() {
            // The process does not end before its tracer has reaped this thread.
            let _ = waitpid(self.thread, Some(nix::sys::wait::WaitPidFlag::__WALL));
        }
        let _ = self.child.wait();
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The threads of a process and their states, oldest first.
fn threads(pid: u32) -> Vec<(Pid, char)> {
    let process = procfs::process::Process::new(i32::try_from(pid).unwrap());
    let tasks = process.and_then(|process| process.tasks());
    let Ok(tasks) = tasks else {
        return Vec::new();
    };
    let state = |task: procfs::process::Task| Some((task.tid, task.stat().ok()?.state));
    let mut threads: Vec<_> = tasks.flatten().filter_map(state).collect();
    threads.sort_unstable();
    threads
        .into_iter()
        .map(|(tid, state)| (Pid::from_raw(tid), state))
        .collect()
}
