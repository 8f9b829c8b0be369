//! From what the kernel side sends to call stacks.

mod process;
mod shares;

use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use zerocopy::FromBytes;

use crate::paths::{Change, Paths, Step};
use crate::python::Refused;
use crate::python::check::{Checked, check};
use crate::python::code::{self, CodeRecord, PythonStack};
use crate::python::known::KnownLines;
use crate::python::process::{Interpreters, Running};
use crate::reader::Reader;
use crate::{AddressSpaces, StackCopy, Unwound};
use gpuprobe_model::abi::{RawStack, record};
use gpuprobe_model::stack::{CallStack, Location};
use gpuprobe_os::privileges::User;
use process::{Process, word_at};
use shares::Shares;

pub use process::Named;

/// Call paths of all processes together that the kernel side knows at most; its map has room for a
/// few more.
const MAX_PATHS: usize = 14_000;
/// A copy of at least this many bytes was cut because there is no room for more.
const CUT_BYTES: u64 = 60 << 10;
/// How long a process is not looked at again only because it has mapped something.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Earlier processes and programs with an id of which calls may still come.
const MAX_EARLIER: usize = 16;
/// Places of a process that are named when it has ended.
const MAX_LAST: usize = 4096;

/// The call stacks of all processes.
#[derive(Default)]
pub struct Taken {
    /// The mappings of the processes.
    pub spaces: AddressSpaces,
    /// When they were looked at because the kernel side did not know where they have code.
    looked: HashMap<u32, Instant>,
    processes: HashMap<u32, Process>,
    /// Processes that had the same id before, the oldest first: stacks are read before calls, so that
    /// the first stack of one may come before the last calls of another.
    earlier: HashMap<u32, VecDeque<Process>>,
    /// What they all take.
    shares: Shares,
    /// States that the kernel side knows.
    known: usize,
    news: News,
    /// Process ids that are another process's or program's from now on.
    begun: Vec<u32>,
    refused: Vec<(u32, String)>,
    /// Processes that were no longer there when that was last looked at.
    suspects: HashSet<u32>,
    /// Where processes that have ended have called from.
    last_places: Vec<(u32, Location, bool)>,
    python: Python,
}

/// The Python of all processes.
#[derive(Default)]
struct Python {
    is_wanted: bool,
    interpreters: Interpreters,
    /// Processes whose interpreters were found, or are not to be read.
    running: HashMap<u32, Option<Rc<Running>>>,
    lines: KnownLines,
    refused: Vec<(u32, Refused)>,
    lost: u64,
}

/// Updates for the kernel side.
#[derive(Debug, Default)]
pub struct News {
    /// States that are not to be known any more; to be removed before the others are entered.
    pub forgotten: Vec<u64>,
    /// How call paths go on.
    pub learnt: Vec<Change>,
    /// Hashes of copies whose paths are known now.
    pub recognised: Vec<u64>,
    /// Processes of which [`AddressSpaces::code`] is new.
    pub looked_at: Vec<u32>,
    /// The interpreters of processes.
    pub interpreters: Vec<(u32, Rc<Running>)>,
}

impl Taken {
    /// Of stacks that have Python frames, if that is wanted. Files are read by `reader`.
    pub fn new(with_python: bool, reader: Reader) -> Self {
        let mut taken = Self {
            spaces: AddressSpaces::new(reader),
            ..Self::default()
        };
        taken.python.is_wanted = with_python;
        taken
    }

    /// Whether `bytes` are for [`Self::take`].
    pub fn is_stack(bytes: &[u8]) -> bool {
        bytes.first_chunk::<2>() == Some(&record::STACK.to_ne_bytes()) || code::is_record(bytes)
    }

    /// The lines of Python in the stacks.
    pub fn lines(&self) -> &KnownLines {
        &self.python.lines
    }

    /// Processes whose Python cannot be read, and why, since this was last asked.
    pub fn take_refused_python(&mut self) -> Vec<(u32, Refused)> {
        std::mem::take(&mut self.python.refused)
    }

    /// Whether the process with this id runs Python that can be read.
    pub fn runs_python(&self, pid: u32) -> bool {
        matches!(self.python.running.get(&pid), Some(Some(_)))
    }

    /// Python frames and code objects for which there was no room.
    pub fn lost_python(&self) -> u64 {
        self.python.lost
    }

    /// Looks for the interpreter of `pid`, in what it had mapped when that was last looked at. It may
    /// run another program by now.
    fn find_python(&mut self, pid: u32) {
        if !self.python.is_wanted {
            return;
        }
        let running = match self.python.interpreters.find(pid, &self.spaces) {
            // It may be loaded later.
            None => {
                self.python.running.remove(&pid);
                return;
            }
            Some(found) => found.and_then(|mut running| {
                let before = self.python.running.get(&pid).and_then(Option::as_ref);
                let is_known = before.is_some_and(|before| before.checks(&running));
                running.is_checked = is_known || check(pid, &running)? != Checked::NotBegun;
                Ok(running)
            }),
        };
        let running = match running {
            Ok(running) => {
                let running = Rc::new(running);
                self.news.interpreters.push((pid, Rc::clone(&running)));
                Some(running)
            }
            Err(why) => {
                if !matches!(self.python.running.get(&pid), Some(None)) {
                    self.python.refused.push((pid, why));
                }
                None
            }
        };
        self.python.running.insert(pid, running);
    }

    /// Takes in a record of Python; false if it cannot be understood.
    fn take_python(&mut self, bytes: &[u8]) -> bool {
        let is_kept = if code::is_code(bytes) {
            let Some(record) = CodeRecord::read(bytes) else {
                return false;
            };
            let process = self.python_process(record.pid, record.process);
            process.is_some_and(|process| !process.is_full && process.sent.keep_code(record))
        } else {
            let Some((pid, stack)) = PythonStack::read(bytes) else {
                return false;
            };
            let process = self.python_process(pid, stack.process);
            process.is_some_and(|process| !process.is_full && process.sent.keep_stack(stack))
        };
        self.python.lost += u64::from(!is_kept);
        true
    }

    /// The process with that number, and its interpreter.
    fn python_process(&mut self, pid: u32, id: u32) -> Option<&mut Process> {
        if self.processes.get(&pid).is_none_or(|p| p.id != id) {
            self.begin(pid, id);
        }
        self.account(pid);
        let process = self.processes.get_mut(&pid)?;
        if process.python.is_none() {
            process.python = self.python.running.get(&pid).cloned().flatten();
        }
        Some(process)
    }

    /// Takes in a record of the kernel side; false if it cannot be understood.
    pub fn take(&mut self, bytes: &[u8]) -> bool {
        if code::is_record(bytes) {
            return self.take_python(bytes);
        }
        self.take_stack(bytes)
    }

    /// Counts what is kept of process `pid`, and whether there may be more.
    fn account(&mut self, pid: u32) {
        if let Some(process) = self.processes.get_mut(&pid) {
            let now = process.bytes();
            self.shares.change(process.user, process.counted, now);
            process.counted = now;
            process.is_full = !self.shares.has_room(process.user);
        }
    }

    fn take_stack(&mut self, bytes: &[u8]) -> bool {
        let Ok((raw, rest)) = RawStack::read_from_prefix(bytes) else {
            return false;
        };
        let Some(copied) = usize::try_from(raw.copied).ok().and_then(|n| rest.get(..n)) else {
            return false;
        };
        let pid = raw.tgid;
        if self.processes.get(&pid).is_none_or(|p| p.id != raw.process) {
            self.begin(pid, raw.process);
        }
        self.account(pid);
        if raw.is_stale != 0 {
            self.look_again(pid);
        }
        if let Some(process) = self.processes.get_mut(&pid)
            && let Some(known) = process.recognise(&raw, copied)
        {
            process.alias(raw.id, known);
            self.news.recognised.push(raw.copy_key);
            return true;
        }
        let walked = self.walked(&raw);
        let unwound = (!copied.is_empty()).then(|| self.unwind(&raw, copied));
        let better = unwound.filter(|unwound| {
            let stack = &unwound.stack;
            stack.is_complete || stack.locations.len() >= walked.locations.len()
        });
        // What stops where it need not would be found in the place of every stack that goes on
        // from there.
        let may_learn = |stack: &CallStack| stack.is_complete || raw.copied >= CUT_BYTES;
        let better = better.map(|mut unwound| {
            if !may_learn(&unwound.stack) {
                unwound.slots.clear();
            }
            unwound
        });
        let (stack, slots) = match better {
            Some(Unwound { stack, slots }) => (stack, slots),
            None => (walked, Vec::new()),
        };
        let Some(process) = self.processes.get_mut(&pid) else {
            return true;
        };
        let Some(id) = process.name(raw.id, stack) else {
            return true;
        };
        if let Some(steps) = steps(&raw, copied, &slots) {
            let changes = process.paths.learn(raw.root, &steps, id);
            if !changes.is_empty() {
                self.news.recognised.push(raw.copy_key);
                self.tell(changes);
            }
        }
        true
    }

    /// Looks at what `pid` has mapped, and leaves it to the next stack to say where it has code.
    pub fn glance_at(&mut self, pid: u32) {
        self.spaces.refresh(pid);
        self.find_python(pid);
    }

    /// Looks at what `pid` has mapped.
    pub fn look_at(&mut self, pid: u32) {
        self.glance_at(pid);
        self.news.looked_at.push(pid);
        self.looked.insert(pid, Instant::now());
    }

    /// The process has mapped something.
    fn look_again(&mut self, pid: u32) {
        let lately = |at: &Instant| at.elapsed() < LOOK_AGAIN;
        if !self.looked.get(&pid).is_some_and(lately) {
            self.look_at(pid);
        }
    }

    /// A process, or its next program, is seen for the first time.
    fn begin(&mut self, pid: u32, id: u32) {
        if let Some(old) = self.drop_process(pid) {
            let earlier = self.earlier.entry(pid).or_default();
            earlier.push_back(old);
            if earlier.len() > MAX_EARLIER
                && let Some(oldest) = earlier.pop_front()
            {
                self.shares.change(oldest.user, oldest.counted, 0);
            }
        }
        self.begun.push(pid);
        // It may have ended by now; then, what it had mapped when it was last looked at counts.
        self.look_at(pid);
        if let Some(refusal) = self.spaces.refusal(pid) {
            self.refused.push((pid, refusal.to_string()));
        }
        let user = User::of(pid).ok().map(|user| user.uid);
        self.processes.insert(pid, Process::new(id, user));
    }

    /// Takes out the process with this id, and forgets its paths: it makes no more calls.
    fn drop_process(&mut self, pid: u32) -> Option<Process> {
        let mut old = self.processes.remove(&pid)?;
        let paths = std::mem::take(&mut old.paths);
        self.known = self.known.saturating_sub(paths.states().len());
        let states: HashSet<_> = paths.states().collect();
        self.news
            .learnt
            .retain(|(state, _)| !states.contains(state));
        self.news.forgotten.extend(states);
        Some(old)
    }

    /// The stack by the frame pointers, from the kernel's walk.
    fn walked(&mut self, raw: &RawStack) -> CallStack {
        let count = usize::from(raw.count).min(raw.addresses.len());
        let mut addresses = raw.addresses[..count].to_vec();
        if addresses.is_empty() {
            addresses.push(raw.ip);
        }
        // Before Linux 6.12, the walk leaves out the caller of a function that has just begun.
        if addresses.get(1) != Some(&raw.return_address) {
            addresses.insert(1, raw.return_address);
        }
        let locations: Vec<_> = addresses
            .into_iter()
            .enumerate()
            .map(|(index, address)| match index {
                0 => self.spaces.locate(raw.tgid, address),
                _ => self.spaces.locate_caller(raw.tgid, address),
            })
            .collect();
        CallStack {
            is_complete: locations.last().is_some_and(|last| self.is_outermost(last)),
            locations,
        }
    }

    /// Whether nothing calls what is at `location`: threads begin in the C library.
    fn is_outermost(&self, location: &Location) -> bool {
        let module = location.module.and_then(|id| self.spaces.module(id));
        let name = module.map(|module| module.name());
        name.is_some_and(|name| {
            ["libc.so", "libc-", "ld-musl"]
                .iter()
                .any(|start| name.starts_with(start))
        })
    }

    fn unwind(&mut self, raw: &RawStack, bytes: &[u8]) -> Unwound {
        let count = usize::from(raw.replaced_count).min(raw.replaced.len());
        let replaced: Vec<_> = raw.replaced[..count]
            .iter()
            .map(|replaced| (replaced.at, replaced.original))
            .collect();
        let copy = StackCopy {
            ip: raw.ip,
            sp: raw.sp,
            bp: raw.fp,
            bytes,
            replaced: &replaced,
        };
        self.spaces.unwind(raw.tgid, &copy)
    }

    fn tell(&mut self, changes: Vec<Change>) {
        self.news.learnt.extend(changes);
        let states = |process: &Process| process.paths.states().len();
        self.known = self.processes.values().map(states).sum();
        if self.known > MAX_PATHS {
            self.start_afresh();
        }
    }

    /// Forgets all paths. They are learnt again, one by one.
    pub fn start_afresh(&mut self) {
        self.news.learnt.clear();
        self.news.recognised.clear();
        for process in self.processes.values_mut() {
            self.news.forgotten.extend(process.paths.states());
            process.paths = Paths::default();
        }
        self.known = 0;
    }

    /// The stack that a call of process `pid` has, by the number that its record has for it.
    pub fn of_call(&mut self, pid: u32, id: u64) -> Option<Named> {
        let earlier = self.earlier.get_mut(&pid).into_iter().flatten();
        let mut all = earlier.chain(self.processes.get_mut(&pid));
        let (spaces, lines) = (&self.spaces, &mut self.python.lines);
        let lost = &mut self.python.lost;
        // Which of them it is, their ids tell: no two have one in common.
        all.find_map(|process| {
            *lost += u64::from(process.merge(id, spaces, lines));
            process.of_call(id)
        })
    }

    /// Notes that a call of `pid`, whose stack has the number `id`, came before the kernel side knew how
    /// to read its interpreter.
    pub fn came_early(&mut self, pid: u32, id: u64) {
        let process = self.processes.get(&pid);
        if self.runs_python(pid) && !process.is_some_and(|process| process.has_python(id)) {
            self.python.lost += 1;
        }
    }

    /// Forgets processes that are no longer there, of whose end nobody told.
    pub fn sweep(&mut self, is_alive: impl Fn(u32) -> bool) {
        let pids = self.spaces.pids().chain(self.processes.keys().copied());
        let gone: HashSet<_> = pids.filter(|pid| !is_alive(*pid)).collect();
        // Calls of one that has just ended may still be in the ring.
        let before = std::mem::replace(&mut self.suspects, gone);
        let still: Vec<_> = self.suspects.intersection(&before).copied().collect();
        for pid in still {
            self.forget_space(pid);
        }
    }

    /// The process, or its program `id`, has ended.
    pub fn forget(&mut self, pid: u32, id: u32) {
        if let Some(earlier) = self.earlier.get_mut(&pid) {
            let ended = earlier.iter().filter(|process| process.id == id);
            for process in ended {
                keep_places(&mut self.last_places, pid, process);
                self.shares.change(process.user, process.counted, 0);
            }
            earlier.retain(|process| process.id != id);
            self.python.lines.forget(id);
            if earlier.is_empty() {
                self.earlier.remove(&pid);
            }
        }
        if self.processes.get(&pid).is_some_and(|p| p.id == id) {
            self.python.lines.forget(id);
            self.forget_space(pid);
        }
    }

    fn forget_space(&mut self, pid: u32) {
        let earlier = self.earlier.remove(&pid).into_iter().flatten();
        for process in earlier.chain(self.drop_process(pid)) {
            keep_places(&mut self.last_places, pid, &process);
            self.shares.change(process.user, process.counted, 0);
        }
        self.spaces.forget(pid);
        self.python.running.remove(&pid);
        self.looked.remove(&pid);
        self.news.looked_at.push(pid);
    }

    /// Where in files processes have called from that have ended since this was last asked, and whether that
    /// is innermost: what is wanted of the files is to be asked for before they are closed.
    pub fn take_last_places(&mut self) -> Vec<(u32, Location, bool)> {
        std::mem::take(&mut self.last_places)
    }

    /// Process ids that are another process's or program's since this was last asked.
    pub fn take_begun(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.begun)
    }

    /// Processes whose stacks cannot be taken, and why, since this was last asked.
    pub fn take_refused(&mut self) -> Vec<(u32, String)> {
        std::mem::take(&mut self.refused)
    }

    /// Whether there is anything for [`Self::take_news`].
    pub fn has_news(&self) -> bool {
        let News {
            forgotten,
            learnt,
            recognised,
            looked_at,
            interpreters,
        } = &self.news;
        !(learnt.is_empty()
            && interpreters.is_empty()
            && forgotten.is_empty()
            && recognised.is_empty()
            && looked_at.is_empty())
    }

    /// The updates for the kernel side since this was last asked.
    pub fn take_news(&mut self) -> News {
        std::mem::take(&mut self.news)
    }
}

/// Adds the places of `process`, whose id was `pid`, to the last ones.
fn keep_places(last: &mut Vec<(u32, Location, bool)>, pid: u32, process: &Process) {
    let places = process
        .told_places()
        .filter(|(place, _)| place.module.is_some());
    last.extend(
        places
            .take(MAX_LAST)
            .map(|(place, is_innermost)| (pid, place, is_innermost)),
    );
}

/// The return addresses by which the path is known again; none if they are not all on the stack that
/// was copied. The first is in the state that the path begins with.
fn steps(raw: &RawStack, copied: &[u8], slots: &[u64]) -> Option<Vec<Step>> {
    let count = usize::from(raw.replaced_count).min(raw.replaced.len());
    let replaced = &raw.replaced[..count];
    let step = |slot: &u64| {
        // What stands there is the same for all callers.
        if replaced.iter().any(|replaced| replaced.at == *slot) {
            return None;
        }
        let offset = slot.checked_sub(raw.sp)?;
        let at = usize::try_from(offset).ok()?;
        let word = word_at(copied, at)?;
        let aligned = offset % 8 == 0;
        Some(Step {
            offset: u16::try_from(offset / 8).ok().filter(|_| aligned)?,
            word,
        })
    };
    let (first, others) = slots.split_first()?;
    if *first != raw.sp {
        return None;
    }
    others.iter().map(step).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use zerocopy::{FromZeros, IntoBytes};

    use super::*;

    /// A walk of one frame, with this id, of a process that cannot be looked at.
    fn stack(pid: u32, process: u32, id: u64) -> Vec<u8> {
        let mut raw = RawStack::new_zeroed();
        raw.record_type = record::STACK;
        raw.tgid = pid;
        raw.process = process;
        raw.id = id;
        raw.ip = id;
        raw.as_bytes().to_vec()
    }

    #[test]
    fn calls_may_come_after_the_first_stack_of_the_next_process_with_the_id() {
        let pid = u32::MAX - 1;
        let mut taken = Taken::default();
        assert!(taken.take(&stack(pid, 1, 11)));
        assert!(taken.of_call(pid, 11).unwrap().new.is_some());
        assert!(taken.take(&stack(pid, 2, 22)));
        // One more call of the first, then its end, then a call of the second.
        assert!(taken.of_call(pid, 11).unwrap().new.is_none());
        taken.forget(pid, 1);
        assert!(taken.of_call(pid, 11).is_none());
        assert!(taken.of_call(pid, 22).unwrap().new.is_some());
        taken.forget(pid, 2);
        assert!(taken.of_call(pid, 22).is_none());
        assert!(taken.earlier.is_empty() && taken.processes.is_empty());
    }

    #[test]
    fn stacks_of_a_user_have_no_more_room_than_he_may_have() {
        let pid = u32::MAX - 1;
        let mut taken = Taken {
            shares: Shares::of(1 << 20),
            ..Taken::default()
        };
        let kept = |taken: &mut Taken, pid, ids: std::ops::Range<u64>| {
            let take = |id: &u64| {
                assert!(taken.take(&stack(pid, 1, *id)));
                taken.of_call(pid, *id).is_some()
            };
            ids.filter(take).count()
        };
        // Calls beyond have none, which whoever asks counts.
        let first = kept(&mut taken, pid, 1..10_000);
        assert!((1000..4000).contains(&first), "{first}");
        assert!(
            kept(&mut taken, pid - 1, 1..100) <= 1,
            "it is the same user's"
        );
        let all = [pid, pid - 1].map(|pid| taken.processes[&pid].bytes());
        assert!(all.iter().sum::<usize>() < (1 << 19) + 1024, "{all:?}");
        taken.forget(pid, 1);
        assert_eq!(kept(&mut taken, pid - 1, 100..200), 100);
        taken.forget(pid - 1, 1);
        assert!(taken.shares.has_room(None));
        assert_eq!(taken.shares.all(), 0);
    }

    #[test]
    fn ends_that_are_not_told_do_not_add_up() {
        let pid = u32::MAX - 1;
        let mut taken = Taken::default();
        for process in 1..1000 {
            taken.take(&stack(pid, process, u64::from(process)));
        }
        assert_eq!(taken.earlier[&pid].len(), MAX_EARLIER);
        assert!(taken.of_call(pid, 990).is_some());
        taken.forget(pid, 999);
        assert!(taken.earlier.is_empty());
    }
}
