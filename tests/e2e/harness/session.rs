//! One start of gpuprobe for many workloads: each has an account of its own, by its PID.

use tempfile::TempDir;

use super::family::{Member, make_channel};
use super::{Backend, Gpuprobe, Report, Setup, Truth, standin};

/// A gpuprobe whose command is a shell that starts workloads when it is asked to. All of them are
/// traced from their first call.
pub(crate) struct Session {
    pub(crate) gpuprobe: Gpuprobe,
    folder: TempDir,
    started: usize,
    sum: Truth,
}

/// A workload that has ended.
pub(crate) struct Ended {
    pub(crate) pid: u32,
    pub(crate) truth: Truth,
    /// Of [`Session::play`].
    pub(crate) replies: Vec<String>,
}

impl Session {
    /// Starts gpuprobe with the options of `with`.
    pub(crate) fn start(with: impl FnOnce(Setup) -> Setup) -> Self {
        let gpuprobe = with(Setup::command(["sh"])).start();
        Self {
            gpuprobe,
            folder: TempDir::new().unwrap(),
            started: 0,
            sum: Truth::default(),
        }
    }

    /// Starts the workload of `backend`.
    pub(crate) fn workload(&mut self, backend: Backend) -> Member {
        self.program(&standin().program_text(backend))
    }

    /// Starts `words`, which are a workload for the shell, with settings before it if there are any.
    pub(crate) fn program(&mut self, words: &str) -> Member {
        let path = self.folder.path().join(self.started.to_string());
        self.started += 1;
        let channel = make_channel(&path);
        // In the background: workloads may run at once.
        let line = format!("{words} {channel} &");
        self.gpuprobe.talk.send(&line);
        Member::open(&path)
    }

    /// Runs a script in a workload of its own, with environment variables if `settings` has some.
    pub(crate) fn play(&mut self, settings: &str, backend: Backend, script: &str) -> Ended {
        let program = standin().program_text(backend);
        let mut member = self.program(&format!("{settings} {program}"));
        let replies = member.play(script);
        Ended {
            replies,
            ..self.done(member)
        }
    }

    /// Ends a workload, and adds its totals to [`Self::end`]'s.
    pub(crate) fn done(&mut self, mut member: Member) -> Ended {
        let (pid, truth) = (member.pid, member.done());
        self.sum = self.sum + truth;
        let replies = Vec::new();
        Ended {
            pid,
            truth,
            replies,
        }
    }

    /// [`Self::play`] for each row: settings, backend and script. Returns the last report, the sum of all totals,
    /// and the rows in order.
    pub(crate) fn table(
        with: impl FnOnce(Setup) -> Setup,
        rows: &[(&str, Backend, &str)],
    ) -> (Report, Truth, Vec<Ended>) {
        let mut session = Self::start(with);
        let rows = rows.iter();
        let ended =
            rows.map(|&(settings, backend, script)| session.play(settings, backend, script));
        let ended = ended.collect();
        let (report, truth) = session.end();
        (report, truth, ended)
    }

    /// Waits for the end of all workloads; returns the last report, and the sum of their totals.
    pub(crate) fn end(&mut self) -> (Report, Truth) {
        self.gpuprobe.talk.send("wait");
        self.gpuprobe.talk.close();
        (self.gpuprobe.final_report(), self.sum)
    }
}
