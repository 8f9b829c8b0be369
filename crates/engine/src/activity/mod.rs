//! GPU activity as CUPTI reports it, summed up per process.

pub mod busy;
pub mod by_work;
pub mod kernels;
pub mod process;
pub mod ranges;
pub mod tally;

use std::collections::{BTreeMap, VecDeque};

use gpuprobe_cuda::Direction;
use gpuprobe_model::activity::ActivityBatch;
use gpuprobe_model::event::{Event, Task};
use process::ProcessActivity;
use tally::Moved;

use super::transfers::Mode;

/// Ended processes kept before the oldest are dropped.
const MAX_ENDED: usize = 1024;

/// GPU activity of all processes.
#[derive(Debug, Default)]
pub struct GpuActivity {
    /// Processes by their number, [`Task::process`].
    processes: BTreeMap<u32, ProcessActivity>,
    /// Ended processes, in the order of their ends.
    ended: VecDeque<u32>,
    /// Number of ended processes that were dropped.
    pub forgotten: u64,
}

impl GpuActivity {
    /// Applies an event; events that are not about GPU activity are ignored.
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

    /// Adds the records of one batch of a process.
    pub fn batch(&mut self, batch: &ActivityBatch) {
        self.process(batch.process, batch.pid).batch(batch);
    }

    /// Marks the process with this number as ended; ignored if it is unknown.
    pub fn end_process(&mut self, number: u32, time_ns: u64) {
        if let Some(process) = self.processes.get_mut(&number) {
            process.ended_ns = Some(time_ns);
        }
    }

    /// Sets the name and user of the process with this number; ignored if it is unknown.
    pub fn introduce(&mut self, number: u32, name: &str, uid: Option<u32>) {
        if let Some(process) = self.processes.get_mut(&number) {
            process.comm = Some(name.to_owned());
            process.uid = uid;
        }
    }

    /// Processes with activity records, in the order of their numbers.
    pub fn processes(&self) -> impl Iterator<Item = (u32, &ProcessActivity)> {
        let all = self.processes.iter();
        let all = all.map(|(number, process)| (*number, process));
        all.filter(|(_, process)| process.records > 0 || process.is_complete)
    }

    /// The process with this number, if it is known.
    pub fn get(&self, number: u32) -> Option<&ProcessActivity> {
        self.processes.get(&number)
    }

    /// Totals, from CUPTI, of the copies and memory sets that calls of this direction and mode of
    /// process `pid` have made.
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
        self.processes
            .values_mut()
            .for_each(ProcessActivity::mark_reported);
    }

    fn process(&mut self, number: u32, pid: u32) -> &mut ProcessActivity {
        self.processes
            .entry(number)
            .or_insert_with(|| ProcessActivity::new(pid))
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

#[cfg(test)]
mod tests;
