//! The rings of the BPF programs. A thread of their own empties them, whatever others do, and passes on what it found
//! in rounds: call stacks to the thread that finds them, the rest to the event loop, which waits for the stacks of a
//! round for a while.

use std::cell::RefCell;
use std::ffi::c_void;
use std::iter;
use std::mem::take;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::mpsc;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libbpf_rs::libbpf_sys::{ring__avail_data_size, ring_buffer__ring};
use libbpf_rs::{AsRawLibbpf, MapCore, MapHandle, MapInfo, RingBuffer, RingBufferBuilder};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;
use nix::sys::mman::{MmapAdvise, madvise};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc as rounds;
use tokio::task::yield_now;
use tokio::time::sleep;
use zerocopy::FromBytes;

use super::load::Probe;
use gpuprobe_model::abi::{RawImage, RawNotice, RawStack, record};
use gpuprobe_model::clock;
use gpuprobe_os::privileges;
use gpuprobe_os::proc::Mappings;

/// Rings that the thread empties, in the order in which their records are applied.
const RINGS: usize = 4;
const STACKS: usize = 0;
/// Interval of rounds at the latest: rings wake their reader only when much is in them.
const TICK: Duration = Duration::from_millis(100);
/// Interval of periodic work at the least: a round may come early.
const WORK_EVERY: Duration = Duration::from_millis(90);
/// Bytes of rounds that nobody has read, and of call stacks, beyond which the rest stays in the rings.
const MAX_QUEUED: usize = 128 << 20;
/// Pause while there are too many.
const QUEUE_PAUSE: Duration = Duration::from_millis(5);
/// How long the next call stack of a round is waited for, longer than a helper is. Calls without theirs are counted.
const STACKS_FOR: Duration = Duration::from_millis(1500);
/// Interval of looks whether they are found.
const STACKS_PAUSE: Duration = Duration::from_millis(1);
/// How long the thread may take to answer.
const FLUSH_FOR: Duration = Duration::from_millis(500);
/// Number and interval of retries for a call stack that is still being written.
const BUSY_ROUNDS: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_micros(50);
/// Bytes before a record in a round, its length.
const HEADER: usize = size_of::<usize>();

/// Consumer of records.
pub trait Consumer {
    /// Processes the next record.
    fn take(&mut self, record: &[u8]);
    /// All rings were read once more.
    fn end_round(&mut self);
}

/// The kernel side's request to scan a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Process id on the host.
    pub pid: u32,
    /// The process is stopped and must be sent `SIGCONT`.
    pub held: bool,
    /// The program that it executes now; `None` if it has mapped a file that may be a CUDA library.
    pub image: Option<RawImage>,
}

/// The call stacks of a round.
#[derive(Debug)]
pub struct Records {
    /// Each after its length.
    bytes: Vec<u8>,
    /// When they were read, in ns.
    read_ns: u64,
}

impl Records {
    /// The records, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = 0;
        iter::from_fn(move || record_at(&self.bytes, &mut at))
    }
}

/// The record at this place, which becomes that of the next one.
fn record_at<'a>(records: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let (length, rest) = records.get(*at..)?.split_first_chunk()?;
    let length = usize::from_ne_bytes(*length);
    *at += (HEADER + length).next_multiple_of(HEADER);
    rest.get(..length)
}

/// Takes the call stacks of a round, and drops them when it is done with them; with the time in ns when it last began
/// with something.
pub(super) type StackConsumer = (Box<dyn Fn(Arc<Records>) + Send>, Arc<AtomicU64>);

/// What was in the rings at one time.
#[derive(Default)]
struct Round {
    /// Its call stacks, until they are found.
    stacks: Weak<Records>,
    /// The other records by ring, each after its length.
    records: [Vec<u8>; RINGS],
    /// Ring and place of the next record.
    next: (usize, usize),
}

impl Round {
    fn bytes(&self) -> usize {
        self.records.iter().map(Vec::len).sum()
    }

    /// The next record; memory calls are first, before the copies after them. GPU activity is last, as the last of a
    /// process can come after its exit.
    fn next(&mut self) -> Option<&[u8]> {
        let (ring, at) = &mut self.next;
        while *at >= self.records.get(*ring)?.len() {
            (*ring, *at) = (*ring + 1, 0);
        }
        record_at(&self.records[*ring], at)
    }
}

/// The rings of memory calls, of kernels and copies, of call stacks and of batches, and that of notices.
pub struct Rings {
    rounds: rounds::UnboundedReceiver<Result<Round>>,
    /// The round that is being read.
    current: Option<Round>,
    ticked: Instant,
    /// Bytes of rounds that were not read.
    queued: Arc<AtomicUsize>,
    /// When the consumer of call stacks last began with something.
    stacks_ns: Arc<AtomicU64>,
    /// Until when call stacks are waited for at most.
    pub stacks_until: Option<Instant>,
    /// Senders of answers; dropped to end the thread.
    requests: Option<mpsc::Sender<mpsc::Sender<()>>>,
    wake: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
    control: RingBuffer<'static>,
    notices: Rc<RefCell<Vec<Notice>>>,
    /// Readable when there are notices.
    noticed: OwnedFd,
}

impl Rings {
    /// Starts the thread. The maps are those of the call stacks, memory calls, kernels and copies, and batches, as far
    /// as they are used; `stacks` is passed the call stacks.
    pub(super) fn open(
        rings: [Option<MapHandle>; RINGS],
        control_ring: &dyn MapCore,
        probe: Arc<Probe>,
        (stacks, stacks_ns): StackConsumer,
    ) -> Result<Self> {
        let queued = Arc::<AtomicUsize>::default();
        let wake = Arc::new(EventFd::new().context("cannot make a descriptor")?);
        let (sender, rounds) = rounds::unbounded_channel();
        let (requests, requested) = mpsc::channel();
        let (counted, woken) = (Arc::clone(&queued), Arc::clone(&wake));
        let empty = move || {
            privileges::keep_only_here(&[]);
            let reader = RingReader::open(&rings, &woken, probe, counted);
            let read = reader.and_then(|reader| reader.run(&requested, &sender, stacks));
            if let Err(error) = read {
                let _ = sender.send(Err(error));
            }
        };
        let thread = thread::Builder::new().name("gpuprobe-rings".to_owned());
        let notices = Rc::<RefCell<Vec<_>>>::default();
        let found = Rc::clone(&notices);
        let mut control = RingBufferBuilder::new();
        control.add(control_ring, move |bytes| {
            found.borrow_mut().extend(decode_notice(bytes));
            0
        })?;
        Ok(Self {
            rounds,
            current: None,
            ticked: Instant::now(),
            queued,
            stacks_ns,
            stacks_until: None,
            requests: Some(requests),
            wake,
            thread: Some(thread.spawn(empty).context("cannot start a thread")?),
            control: control.build()?,
            notices,
            noticed: control_ring.as_fd().try_clone_to_owned()?,
        })
    }

    /// Completes when there is a round to read, once its call stacks are found or were waited for long enough.
    ///
    /// # Errors
    /// Returns why the rings are not read any more.
    pub async fn arrived(&mut self) -> Result<()> {
        // Signals and timers are for the loop to look at meanwhile.
        match &self.current {
            Some(_) if self.awaits_stacks() => sleep(STACKS_PAUSE).await,
            Some(_) => yield_now().await,
            None => {
                let round = self.rounds.recv().await;
                self.current = Some(round.context("the thread that reads the rings has ended")??);
            }
        }
        Ok(())
    }

    /// Whether the call stacks of the round are waited for: while they are being found, and there is room for more rounds.
    /// Those of calls are found before the calls are read.
    fn awaits_stacks(&self) -> bool {
        let round = self.current.as_ref();
        let stacks = round.and_then(|round| round.stacks.upgrade());
        let last_ns = self.stacks_ns.load(Ordering::Relaxed);
        let is_found = |stacks: Arc<Records>| {
            let since_ns = clock::monotonic_ns().saturating_sub(last_ns.max(stacks.read_ns));
            Duration::from_nanos(since_ns) < STACKS_FOR
        };
        stacks.is_some_and(is_found)
            && self.stacks_until.is_none_or(|until| Instant::now() < until)
            && self.queued.load(Ordering::Relaxed) <= MAX_QUEUED / 2
    }

    /// Whether a tenth of a second is over since this was last so.
    pub fn has_ticked(&mut self) -> bool {
        let has_ticked = self.ticked.elapsed() >= WORK_EVERY;
        if has_ticked {
            self.ticked = Instant::now();
        }
        has_ticked
    }

    /// Has everything that is in the rings now arrive.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be woken.
    pub fn flush(&self) -> Result<()> {
        let (done, answer) = mpsc::channel();
        if let Some(requests) = &self.requests {
            let _ = requests.send(done);
        }
        self.wake.write(1).context("cannot wake a thread")?;
        if answer.recv_timeout(FLUSH_FOR).is_err() {
            tracing::debug!("the rings were not read in time");
        }
        Ok(())
    }

    /// Passes the records that have arrived to `consumer`, at most until `until`; the next call continues. Those of a round
    /// whose call stacks are being found are waited for if `waits`, and left to a later call if not.
    ///
    /// # Errors
    /// Returns why the rings are not read any more.
    pub fn read(
        &mut self,
        consumer: &mut impl Consumer,
        until: Option<Instant>,
        waits: bool,
    ) -> Result<()> {
        let is_over = || until.is_some_and(|until| Instant::now() > until);
        loop {
            if self.current.is_none() {
                self.current = self.rounds.try_recv().ok().transpose()?;
            }
            if self.awaits_stacks() {
                if !waits || is_over() {
                    return Ok(());
                }
                thread::sleep(STACKS_PAUSE);
                continue;
            }
            let Some(round) = &mut self.current else {
                return Ok(());
            };
            for number in 0u64.. {
                let Some(record) = round.next() else { break };
                consumer.take(record);
                if number.is_multiple_of(64) && is_over() {
                    return Ok(());
                }
            }
            self.queued.fetch_sub(round.bytes(), Ordering::Relaxed);
            self.current = None;
            consumer.end_round();
        }
    }

    /// Whether records have arrived that were not read.
    pub fn is_behind(&self) -> bool {
        self.current.is_some() || !self.rounds.is_empty()
    }

    /// Removes and returns the notices in the control ring.
    ///
    /// # Errors
    /// Returns an error of libbpf.
    pub fn read_notices(&mut self) -> Result<Vec<Notice>> {
        self.control.consume()?;
        Ok(take(&mut *self.notices.borrow_mut()))
    }

    /// Readable when there are notices. Needs a Tokio runtime.
    ///
    /// # Errors
    /// Returns an error if the descriptor cannot be registered.
    pub fn watch_control(&self) -> Result<AsyncFd<OwnedFd>> {
        watch(self.noticed.try_clone()?)
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        drop(self.requests.take());
        let _ = self.wake.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread's side.
struct RingReader {
    rings: [Option<OneRing>; RINGS],
    epoll: Epoll,
    probe: Arc<Probe>,
    queued: Arc<AtomicUsize>,
}

impl RingReader {
    fn open(
        maps: &[Option<MapHandle>; RINGS],
        wake: &EventFd,
        probe: Arc<Probe>,
        queued: Arc<AtomicUsize>,
    ) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        // Only what comes wakes, not what is there: rings are read when much is in them.
        let comes = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0);
        epoll.add(wake, comes)?;
        let mut rings = [const { None }; RINGS];
        for (index, (ring, map)) in rings.iter_mut().zip(maps).enumerate() {
            if let Some(map) = map {
                epoll.add(map.as_fd(), comes)?;
                *ring = Some(OneRing::open(map, index == STACKS)?);
            }
        }
        keep_from_children();
        Ok(Self {
            rings,
            epoll,
            probe,
            queued,
        })
    }

    /// Passes rounds on until the other side of `requests` is closed.
    fn run(
        &self,
        requests: &mpsc::Receiver<mpsc::Sender<()>>,
        rounds: &rounds::UnboundedSender<Result<Round>>,
        stacks: impl Fn(Arc<Records>),
    ) -> Result<()> {
        let mut waiting = Vec::<Weak<Records>>::new();
        loop {
            waiting.retain(|records| records.strong_count() > 0);
            let bytes = waiting.iter().filter_map(Weak::upgrade);
            let takes_stacks =
                bytes.map(|records| records.bytes.len()).sum::<usize>() <= MAX_QUEUED;
            let is_full = self.queued.load(Ordering::Relaxed) > MAX_QUEUED;
            // A record that came during the last reading may have been read by it, and its wake-up is over: none follows.
            let is_woken = self.probe.bss().wake_pending != [0; RINGS];
            let pause = match (is_full || !takes_stacks, is_woken) {
                (true, _) => QUEUE_PAUSE,
                (false, true) => Duration::ZERO,
                (false, false) => TICK,
            };
            let pause = EpollTimeout::try_from(pause)?;
            let woken = self
                .epoll
                .wait(&mut [EpollEvent::empty(); RINGS + 1], pause);
            if woken != Err(Errno::EINTR) {
                woken.context("cannot wait for the rings")?;
            }
            let mut asked = Vec::new();
            let is_over = loop {
                match requests.try_recv() {
                    Ok(done) => asked.push(done),
                    Err(error) => break error == mpsc::TryRecvError::Disconnected,
                }
            };
            if is_over {
                return Ok(());
            }
            if is_full && asked.is_empty() {
                continue;
            }
            let mut round = self.read(takes_stacks);
            let bytes = take(&mut round.records[STACKS]);
            if !bytes.is_empty() {
                let read_ns = clock::monotonic_ns();
                let records = Arc::new(Records { bytes, read_ns });
                round.stacks = Arc::downgrade(&records);
                waiting.push(Weak::clone(&round.stacks));
                stacks(records);
            }
            self.queued.fetch_add(round.bytes(), Ordering::Relaxed);
            let _ = rounds.send(Ok(round));
            for done in asked {
                let _ = done.send(());
            }
        }
    }

    /// Reads all rings, from the last one to the first, which is that of call stacks.
    fn read(&self, takes_stacks: bool) -> Round {
        // From here on a new record wakes this thread again.
        self.probe.bss().wake_pending = [0; RINGS];
        fence(Ordering::SeqCst);
        let mut round = Round::default();
        for (index, ring) in self.rings.iter().enumerate().rev() {
            if let Some(ring) = ring.as_ref().filter(|_| takes_stacks || index != STACKS) {
                round.records[index] = ring.read();
            }
        }
        round
    }
}

/// A fork does not copy the page tables of mapped maps, which takes milliseconds.
#[allow(unsafe_code)]
fn keep_from_children() {
    let mappings = Mappings::of(std::process::id());
    let mappings = mappings.iter().flat_map(Mappings::iter);
    // Of the kernel's own files, which have no path.
    for map in mappings.filter(|map| map.inode != 0 && map.path().is_none()) {
        if let Some(start) = NonNull::new(map.start as *mut c_void) {
            let advice = MmapAdvise::MADV_DONTFORK;
            // SAFETY: the memory stays as it is; children run other programs at once, and use none of it.
            let _ = unsafe { madvise(start, (map.end - map.start) as usize, advice) };
        }
    }
}

/// A ring, and what was read of it.
struct OneRing {
    buffer: RingBuffer<'static>,
    records: Rc<RefCell<Vec<u8>>>,
    max_bytes: usize,
    /// Whether a record that is still being written is waited for: it blocks those behind it.
    is_patient: bool,
}

impl OneRing {
    fn open(map: &MapHandle, is_stacks: bool) -> Result<Self> {
        let records = Rc::<RefCell<Vec<u8>>>::default();
        let max_bytes = MapInfo::new(map.as_fd())?.info.max_entries as usize;
        let into = Rc::clone(&records);
        let mut builder = RingBufferBuilder::new();
        builder.add(map, move |bytes| {
            let mut into = into.borrow_mut();
            let bytes = without_padding(bytes);
            into.extend(bytes.len().to_ne_bytes());
            into.extend(bytes);
            let end = into.len().next_multiple_of(HEADER);
            into.resize(end, 0);
            // All that was in the ring has been read: what its writers add is for the next round.
            -i32::from(into.len() >= max_bytes)
        })?;
        Ok(Self {
            buffer: builder.build()?,
            records,
            max_bytes,
            is_patient: is_stacks,
        })
    }

    fn read(&self) -> Vec<u8> {
        for _ in 0..BUSY_ROUNDS {
            // An error is that of the closure, which ends the round.
            let _ = self.buffer.consume_raw();
            if !self.is_patient || !self.has_more() || self.records.borrow().len() >= self.max_bytes
            {
                break;
            }
            thread::sleep(BUSY_PAUSE);
        }
        take(&mut *self.records.borrow_mut())
    }

    #[allow(unsafe_code)]
    fn has_more(&self) -> bool {
        // SAFETY: the ring buffer lives as long as `self`, and its first ring with it.
        unsafe {
            let ring = ring_buffer__ring(self.buffer.as_libbpf_object().as_ptr(), 0);
            ring__avail_data_size(ring) > 0
        }
    }
}

/// Makes a descriptor one that the event loop waits for.
#[allow(unsafe_code)]
pub(crate) fn watch(fd: OwnedFd) -> Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is open, and only the `AsyncFd` owns it.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    Ok(watched?)
}

fn decode_notice(bytes: &[u8]) -> Option<Notice> {
    let (raw, _) = RawNotice::read_from_prefix(bytes).ok()?;
    let image = match raw.record_type {
        record::NEW_IMAGE => Some(raw.image),
        record::NEW_LIBRARY => None,
        _ => return None,
    };
    Some(Notice {
        pid: raw.tgid,
        held: raw.held != 0,
        image,
    })
}

/// A record without the bytes of its buffer that the copy of the stack did not need.
fn without_padding(bytes: &[u8]) -> &[u8] {
    if bytes.first_chunk::<2>() != Some(&record::STACK.to_ne_bytes()) {
        return bytes;
    }
    let Ok((stack, rest)) = RawStack::read_from_prefix(bytes) else {
        return bytes;
    };
    &bytes[..size_of::<RawStack>() + rest.len().min(stack.copied as usize)]
}
