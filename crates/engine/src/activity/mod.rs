//! What the GPU did and when, summed up.

pub mod busy;
pub mod by_work;
pub mod kernels;
pub mod process;
pub mod quantiles;
pub mod ranges;
pub mod tally;

use std::collections::{BTreeMap, VecDeque};

use gpuprobe_cuda::Direction;
use gpuprobe_model::activity::Batch;
use gpuprobe_model::event::{Event, Task};
use process::Process;
use tally::Moved;

use super::transfers::Mode;

/// Processes that are remembered after their end.
const MAX_ENDED: usize = 1024;

/// What the GPU did for every process.
#[derive(Debug, Default)]
pub struct Activities {
    /// By [`Task::process`].
    processes: BTreeMap<u32, Process>,
    /// Of those that ended, in that order.
    ended: VecDeque<u32>,
    /// Processes of which nothing is remembered any more.
    pub forgotten: u64,
}

impl Activities {
    /// Enters an event.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Activity(batch) => self.batch(batch),
            Event::Process(task) => {
                let process = self.process(task.process, task.pid);
                process.uid = Some(task.uid);
                process.comm = Some(task.comm.clone());
            }
            Event::Exit(task) | Event::Exec(task) => self.end(task),
            _ => {}
        }
    }

    /// Enters what one batch of a process said.
    pub fn batch(&mut self, batch: &Batch) {
        self.process(batch.process, batch.pid).batch(batch);
    }

    /// The process of this number has ended; nothing if it is not known.
    pub fn end_process(&mut self, number: u32, time_ns: u64) {
        if let Some(process) = self.processes.get_mut(&number) {
            process.ended_ns = Some(time_ns);
        }
    }

    /// The process of this number is called `name` and is of user `uid`; nothing if it is not known.
    pub fn introduce(&mut self, number: u32, name: &str, uid: Option<u32>) {
        if let Some(process) = self.processes.get_mut(&number) {
            process.comm = Some(name.to_owned());
            process.uid = uid;
        }
    }

    /// Those that CUPTI has told anything of, in the order of their numbers.
    pub fn processes(&self) -> impl Iterator<Item = (u32, &Process)> {
        let told = |process: &&Process| process.records > 0 || process.is_complete;
        let with_number = self
            .processes
            .iter()
            .map(|(number, process)| (*number, process));
        with_number.filter(move |(_, process)| told(process))
    }

    /// The process of this number, if it is known.
    pub fn get(&self, number: u32) -> Option<&Process> {
        self.processes.get(&number)
    }

    /// What CUPTI says of the copies and sets of a process that calls of this direction and mode
    /// have made.
    pub fn moved(&self, pid: u32, direction: Direction, mode: Mode) -> Moved {
        let mut sum = Moved::default();
        for process in self.processes.values().filter(|process| process.pid == pid) {
            if direction == Direction::Set {
                sum.merge(&process.sets);
            }
            for (which, moved) in &process.copies {
                if (which.direction, which.mode) == (direction, Some(mode)) {
                    sum.merge(moved);
                }
            }
        }
        sum
    }

    /// Notes that a report has shown everything.
    pub fn mark_reported(&mut self) {
        self.processes.values_mut().for_each(Process::mark_reported);
    }

    fn process(&mut self, number: u32, pid: u32) -> &mut Process {
        self.processes
            .entry(number)
            .or_insert_with(|| Process::new(pid))
    }

    fn end(&mut self, task: &Task) {
        let Some(process) = self.processes.get_mut(&task.process) else {
            return;
        };
        process.ended_ns = Some(task.time_ns);
        self.ended.push_back(task.process);
        if self.ended.len() > MAX_ENDED
            && let Some(oldest) = self.ended.pop_front()
        {
            self.forgotten += u64::from(self.processes.remove(&oldest).is_some());
        }
    }
}
