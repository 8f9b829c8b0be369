//! The process filter (`--comm`, `--uid`, `--exclude`, `--container`, `--cgroup`).

use std::collections::BTreeMap;

use clap::Args;
use nix::unistd::User;

use super::empty_run::{MAX_NAMES, Met, Seen};
use crate::host::identity::is_within;
use gpuprobe_model::abi::PROCESS_PID_SHIFT;
use gpuprobe_model::event::{Event, Task};
use gpuprobe_model::identity::Identity;

/// Criteria that a reported process meets, all of them. An empty one accepts every process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct ProcessFilter {
    /// Report only processes of this name; repeatable.
    #[arg(long = "comm", value_name = "NAME")]
    pub comms: Vec<String>,

    /// Report only processes of this user, a name or number; repeatable.
    #[arg(long = "uid", value_name = "USER", value_parser = parse_user)]
    pub uids: Vec<u32>,

    /// Ignore processes of this name or PID; repeatable.
    #[arg(long = "exclude", value_name = "NAME|PID")]
    pub excluded: Vec<String>,

    /// Report only processes in this container: its id or a prefix.
    #[arg(long, value_name = "ID")]
    pub container: Option<String>,

    /// Report only processes in this cgroup and below.
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<String>,
}

/// A user id, or the id of the user who has that name.
fn parse_user(text: &str) -> Result<u32, String> {
    if let Ok(uid) = text.parse() {
        return Ok(uid);
    }
    match User::from_name(text) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => Err(format!("there is no user '{text}'")),
        Err(error) => Err(format!("cannot look up the user '{text}': {error}")),
    }
}

/// Length to which the kernel truncates names: `TASK_COMM_LEN` without the final NUL.
const COMM_BYTES: usize = 15;

impl ProcessFilter {
    /// Whether every process is accepted. It is asked for each event.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a process is reported.
    pub(super) fn accepts(&self, task: &Task, identity: impl FnOnce() -> Identity) -> bool {
        self.judge(task, identity) == [true; 5]
    }

    /// The criteria that a process meets. `identity` is called only if a criterion needs it.
    fn judge(&self, task: &Task, identity: impl FnOnce() -> Identity) -> Met {
        let is_named = |name: &String| {
            let bytes = name.as_bytes();
            bytes[..bytes.len().min(COMM_BYTES)] == *task.comm.as_bytes()
        };
        let has_id = |text: &String| text.parse() == Ok(task.pid);
        let asks = self.container.is_some() || self.cgroup.is_some();
        let identity = asks.then(identity).unwrap_or_default();
        let is_in_container = |wanted: &String| {
            let container = identity.container.as_deref();
            container.is_some_and(|id| id.starts_with(wanted))
        };
        let is_in_cgroup = |wanted: &String| {
            let cgroup = identity.cgroup.as_deref();
            cgroup.is_some_and(|path| is_within(path, wanted))
        };
        [
            self.comms.is_empty() || self.comms.iter().any(is_named),
            self.uids.is_empty() || self.uids.contains(&task.uid),
            self.container.as_ref().is_none_or(is_in_container),
            self.cgroup.as_ref().is_none_or(is_in_cgroup),
            !self.excluded.iter().any(|e| is_named(e) || has_id(e)),
        ]
    }
}

/// Applies a filter to events. A process is checked at its first event and again after a change of its
/// name; an accepted one stays accepted.
#[derive(Debug, Default)]
pub(super) struct EventFilter {
    filter: ProcessFilter,
    /// The processes seen, for the message of a session without events.
    pub(super) seen: Seen,
    /// By the number on the kernel side, which begins with the process id. Of ended processes too: records of other
    /// rings and counts may arrive after their end.
    judged: BTreeMap<u32, FilteredProcess>,
}

#[derive(Clone, Copy, Debug)]
struct FilteredProcess {
    accepted: bool,
    /// 0 while it lives; then the next read of the launch counts after its end.
    ended: u8,
}

impl EventFilter {
    pub(super) fn new(filter: ProcessFilter) -> Self {
        Self {
            filter,
            ..Self::default()
        }
    }

    /// Whether `event` is of an accepted process.
    pub(super) fn passes(
        &mut self,
        event: &Event,
        identity: impl FnOnce(&Task) -> Identity,
    ) -> bool {
        self.seen.any = true;
        if self.filter.is_empty() {
            return true;
        }
        match event {
            Event::Process(task) => {
                let known = self.judged.get(&task.process);
                let accepted = known.is_some_and(|known| known.accepted)
                    || self.accepts(task, || identity(task));
                let judged = FilteredProcess { accepted, ended: 0 };
                self.judged.insert(task.process, judged);
                accepted
            }
            Event::Exit(task) | Event::Exec(task) => {
                let judged = self.judged.get_mut(&task.process);
                judged.is_some_and(|judged| {
                    judged.ended = 1;
                    judged.accepted
                })
            }
            _ => self.is_accepted(event.pid()),
        }
    }

    fn accepts(&mut self, task: &Task, identity: impl FnOnce() -> Identity) -> bool {
        let met = self.filter.judge(task, identity);
        let is_accepted = met == [true; 5];
        let seen = &mut self.seen;
        seen.met = std::array::from_fn(|at| seen.met[at] || met[at]);
        seen.accepted |= is_accepted;
        if seen.names.len() < MAX_NAMES {
            seen.names.insert(task.comm.clone());
        }
        is_accepted
    }

    /// For the launch counts of a process: `None` to add them up, else whether the kernel side keeps
    /// them.
    pub(super) fn keeps_launches(&self, number: u32) -> Option<bool> {
        if self.filter.is_empty() {
            return None;
        }
        match self.judged.get(&number) {
            Some(judged) => (!judged.accepted).then_some(judged.ended == 0),
            None => Some(true),
        }
    }

    /// The launch counts were read: removes the processes that had ended by the read before, of which no
    /// more records arrive.
    pub(super) fn counts_were_read(&mut self) {
        self.judged.retain(|_, judged| {
            judged.ended += u8::from(judged.ended > 0);
            judged.ended <= 2
        });
    }

    /// Whether a process was accepted; false if its first record was lost.
    fn is_accepted(&self, pid: u32) -> bool {
        let first = pid << PROCESS_PID_SHIFT;
        let numbers = first..=first | ((1 << PROCESS_PID_SHIFT) - 1);
        let judged = self.judged.range(numbers);
        let judged = judged.min_by_key(|(_, judged)| judged.ended);
        judged.is_some_and(|(_, judged)| judged.accepted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(pid: u32, uid: u32, comm: &str) -> Task {
        Task {
            pid,
            tid: pid,
            uid,
            process: pid << 10,
            from_birth: true,
            inner_pid: pid,
            cgroup: 1,
            time_ns: 1,
            comm: comm.to_owned(),
        }
    }

    fn accepts(filter: &ProcessFilter, task: &Task, container: &str, cgroup: &str) -> bool {
        assert_eq!(filter.is_empty(), *filter == ProcessFilter::default());
        let identity = || Identity {
            container: Some(container.to_owned()),
            cgroup: Some(cgroup.to_owned()),
            ..Identity::default()
        };
        filter.accepts(task, identity)
    }

    #[test]
    fn all_criteria_must_be_met() {
        let train = task(7, 1000, "train");
        let check = |filter: ProcessFilter| accepts(&filter, &train, "abc123", "/a/docker-abc123");
        let strings = |words: &[&str]| words.iter().map(|&w| w.to_owned()).collect();
        for (comms, uids, excluded, expected) in [
            (vec![], vec![], vec![], true),
            (vec!["train", "serve"], vec![1000], vec!["other"], true),
            (vec!["serve"], vec![], vec![], false),
            (vec![], vec![0], vec![], false),
            (vec![], vec![], vec!["train"], false),
            (vec![], vec![], vec!["7"], false),
        ] {
            let filter = ProcessFilter {
                comms: strings(&comms),
                uids,
                excluded: strings(&excluded),
                ..ProcessFilter::default()
            };
            assert_eq!(check(filter.clone()), expected, "{filter:?}");
        }
        for (container, cgroup, expected) in [
            (Some("abc"), None, true),
            (Some("xyz"), None, false),
            (None, Some("/a"), true),
            (Some("abc"), Some("/b"), false),
        ] {
            let filter = ProcessFilter {
                container: container.map(str::to_owned),
                cgroup: cgroup.map(str::to_owned),
                ..ProcessFilter::default()
            };
            assert_eq!(check(filter.clone()), expected, "{filter:?}");
        }
        // The kernel truncates names.
        let long = ProcessFilter {
            comms: strings(&["a_very_long_name_of_a_program"]),
            ..ProcessFilter::default()
        };
        assert!(accepts(&long, &task(8, 0, "a_very_long_nam"), "", ""));
    }

    #[test]
    fn an_accepted_process_stays_accepted() {
        let mut filter = EventFilter::new(ProcessFilter {
            comms: vec!["train".into()],
            ..ProcessFilter::default()
        });
        let mut passes = |event: Event| filter.passes(&event, |_| Identity::default());
        assert!(!passes(Event::Process(task(7, 0, "python"))));
        assert!(!passes(Event::Thread(task(7, 0, "python"))));
        assert!(passes(Event::Process(task(7, 0, "train"))));
        assert!(passes(Event::Process(task(7, 0, "python"))));
        assert!(passes(Event::Exit(task(7, 0, "python"))));
        // A record of another ring may arrive later.
        assert!(passes(Event::Thread(task(7, 0, "python"))));
        assert!(!passes(Event::Process(task(8, 0, "python"))));
        assert!(!passes(Event::Exit(task(8, 0, "python"))));
        for _ in 0..2 {
            assert_eq!(filter.keeps_launches(7 << 10), None);
            assert_eq!(filter.keeps_launches(8 << 10), Some(false));
            filter.counts_were_read();
        }
        assert_eq!(filter.keeps_launches(7 << 10), Some(true));
        assert_eq!(filter.keeps_launches(8 << 10), Some(true));
    }
}
