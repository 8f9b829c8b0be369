//! Access to the maps and globals of the loaded programs.

use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use zerocopy::{FromBytes, IntoBytes};

use super::load::Probe;
use super::lost;
use super::rings::{Rings, StackConsumer};
use super::skeleton::types;
use crate::probe::StackMode;
use gpuprobe_model::abi::{
    DEVICE_UNKNOWN, RawCode, RawImage, RawLaunchCount, RawLaunchKey, RawPath, RawPython,
};
use gpuprobe_model::clock;
use gpuprobe_model::{Lost, UserLoss};

impl Probe {
    /// Opens the rings. Each supports a single reader. `stacks` is passed the call stacks.
    ///
    /// # Errors
    /// Returns an error of libbpf or of `mmap`, or an error if the thread that empties them cannot be started.
    pub fn rings(self: &Arc<Self>, stacks: StackConsumer) -> Result<Rings> {
        let maps = &self.skeleton.maps;
        let stack_ring = (self.stacks != StackMode::Off).then_some(&maps.stack_ring);
        let batches = self.batches.then_some(&maps.batch_ring);
        let rings = [
            stack_ring.map(MapHandle::try_from).transpose()?,
            Some(MapHandle::try_from(&maps.memory_ring)?),
            Some(MapHandle::try_from(&maps.activity_ring)?),
            batches.map(MapHandle::try_from).transpose()?,
        ];
        Rings::open(rings, &maps.control_ring, Arc::clone(self), stacks)
    }

    /// Adds a process to the map of targets.
    ///
    /// # Errors
    /// Returns an error if the map is full.
    pub fn add_target(&self, pid: u32) -> Result<()> {
        let one = 1u32.to_ne_bytes();
        enter(&self.skeleton.maps.targets, &pid.to_ne_bytes(), &one)
            .with_context(|| format!("cannot trace process {pid}"))
    }

    /// Whether any target is left.
    pub fn has_targets(&self) -> bool {
        self.skeleton.maps.targets.keys().next().is_some()
    }

    /// The map of targets, by process id.
    pub fn targets_map(&self) -> BorrowedFd<'_> {
        self.skeleton.maps.targets.as_fd()
    }

    /// Removes a process from the map of targets.
    pub fn remove_target(&self, pid: u32) {
        forget(&self.skeleton.maps.targets, [pid.to_ne_bytes()]);
    }

    /// Marks the end of the initial attach: threads that start from now on are traced from their first
    /// call.
    pub fn all_attached(&self) {
        self.bss().attached_boot_ns = clock::boot_ns();
    }

    /// Marks the dynamic loader of `image` as probed: an exec of it needs no scan for a while.
    pub fn image_known(&self, image: RawImage) {
        let (images, now) = (&self.skeleton.maps.known_images, clock::boot_ns());
        if let Err(error) = enter(images, image.as_bytes(), &now.to_ne_bytes()) {
            tracing::debug!(
                "cannot mark a loader as probed, its programs are scanned again: {error}"
            );
        }
    }

    /// Unmarks all dynamic loaders: every exec causes a scan.
    pub fn forget_images(&self) {
        let images = &self.skeleton.maps.known_images;
        forget(images, images.keys().collect::<Vec<_>>());
    }

    /// Announces a scan of process `pid`: files that it maps from now on cause another notice. Returns the time on
    /// `CLOCK_BOOTTIME` since which it may have mapped some: its last notice, or the start of its program.
    pub fn scan_begins(&self, pid: u32) -> Option<u64> {
        let noticed = time_in(&self.skeleton.maps.noticed, pid);
        forget(&self.skeleton.maps.noticed, [pid.to_ne_bytes()]);
        let since_boot = clock::boot_ns().saturating_sub(clock::monotonic_ns());
        let noticed = noticed.map(|monotonic_ns| monotonic_ns + since_boot);
        noticed.or_else(|| self.program_start(pid))
    }

    /// When process `pid` executed its program, on `CLOCK_BOOTTIME`, if it did so during tracing.
    pub fn program_start(&self, pid: u32) -> Option<u64> {
        time_in(&self.skeleton.maps.programs, pid)
    }

    /// Records that process `pid` may have called a library before it was probed.
    pub fn attached_late(&self, pid: u32) {
        let (late, now) = (&self.skeleton.maps.late_views, clock::boot_ns());
        if let Err(error) = enter(late, &pid.to_ne_bytes(), &now.to_ne_bytes()) {
            // The map is full. Calls of all threads until now count as missed: their current devices are
            // unknown, which is better than wrong.
            tracing::debug!(
                "all processes are marked as attached late, no room for {pid}: {error}"
            );
            self.bss().attached_boot_ns = now;
        }
    }

    /// Whether threads were seen calling, and the current device of each is known.
    pub fn knows_devices(&self) -> bool {
        let threads = &self.skeleton.maps.threads;
        let is_known = |tid: Vec<u8>| {
            let thread = threads.lookup(&tid, MapFlags::ANY).ok()??;
            let number = |at| Some(u32::from_ne_bytes(thread.get(at..at + 4)?.try_into().ok()?));
            let level = number(offset_of!(types::gp_thread, level))? as usize;
            let current = offset_of!(types::gp_thread, current);
            let current = current + level * size_of::<types::gp_current>();
            let device = number(current + offset_of!(types::gp_current, device))?;
            Some(device.cast_signed() != DEVICE_UNKNOWN)
        };
        let mut known = threads.keys().filter_map(is_known).peekable();
        known.peek().is_some() && known.all(|is_known| is_known)
    }

    /// Passes each counted kernel and graph to `take`: key, number of launches that ran, and of launches
    /// captured into a graph, summed over all CPUs. Entries are deleted if it returns false.
    ///
    /// # Errors
    /// Returns an error if the map cannot be read.
    pub fn launches(&self, mut take: impl FnMut(RawLaunchKey, u64, u64) -> bool) -> Result<()> {
        let map = &self.skeleton.maps.launches;
        let mut done_with = Vec::new();
        for bytes in map.keys() {
            let (Ok(key), Some(shares)) = (
                RawLaunchKey::read_from_bytes(&bytes),
                map.lookup_percpu(&bytes, MapFlags::ANY)?,
            ) else {
                continue;
            };
            let (mut runs, mut captured) = (0, 0);
            let shares = shares.iter();
            for (share, _) in shares.flat_map(|share| RawLaunchCount::read_from_prefix(share)) {
                runs += share.runs;
                captured += u64::from(share.captured);
            }
            if !take(key, runs, captured) {
                done_with.push(bytes);
            }
        }
        forget(map, done_with);
        Ok(())
    }

    /// Adds the continuations of known call paths, by their state.
    ///
    /// # Errors
    /// Returns an error if the map is full.
    pub fn enter_paths(&self, paths: &[(u64, RawPath)]) -> Result<()> {
        for (state, path) in paths {
            let map = &self.skeleton.maps.paths;
            enter(map, &state.to_ne_bytes(), path.as_bytes()).context("cannot add a call path")?;
        }
        Ok(())
    }

    /// Sets the executable pages of process `pid`.
    ///
    /// # Errors
    /// Returns an error if the map is full; more stacks of the process are copied then.
    pub fn enter_code(&self, pid: u32, code: &RawCode) -> Result<()> {
        if self.stacks != StackMode::Auto {
            return Ok(());
        }
        let map = &self.skeleton.maps.code_maps;
        enter(map, &pid.to_ne_bytes(), code.as_bytes())
            .with_context(|| format!("cannot set the executable pages of process {pid}"))
    }

    /// Removes the executable pages of process `pid`.
    pub fn forget_code(&self, pid: u32) {
        if self.stacks == StackMode::Auto {
            forget(&self.skeleton.maps.code_maps, [pid.to_ne_bytes()]);
        }
    }

    /// Sets the interpreter layout of process `pid`.
    ///
    /// # Errors
    /// Returns an error if the map is full.
    pub fn enter_python(&self, pid: u32, python: &RawPython) -> Result<()> {
        let map = &self.skeleton.maps.pythons;
        enter(map, &pid.to_ne_bytes(), python.as_bytes())
            .with_context(|| format!("cannot set the interpreter layout of process {pid}"))
    }

    /// Removes the continuations of call paths from these states.
    pub fn forget_paths(&self, states: impl IntoIterator<Item = u64>) {
        let states = states.into_iter().map(u64::to_ne_bytes);
        forget(&self.skeleton.maps.paths, states);
    }

    /// Marks the stacks with these hashes as not sent: the next one is copied again.
    pub fn forget_copies(&self, keys: impl IntoIterator<Item = u64>) {
        let keys = keys.into_iter().map(u64::to_ne_bytes);
        forget(&self.skeleton.maps.sent_copies, keys);
    }

    /// Losses of the kernel side so far.
    pub fn lost(&self) -> Lost {
        let globals = self.skeleton.maps.bss.lookup(&[0; 4], MapFlags::ANY);
        lost::all(&globals.ok().flatten().unwrap_or_default())
    }

    /// Losses of the kernel side by process.
    pub fn lost_by_process(&self) -> Vec<UserLoss> {
        let map = &self.skeleton.maps.process_losses;
        let loss = |key: Vec<u8>| {
            let value = map.lookup(&key, MapFlags::ANY).ok()??;
            lost::of_process(&key, &value)
        };
        map.keys().filter_map(loss).collect()
    }
}

fn enter(map: &impl MapCore, key: &[u8], value: &[u8]) -> libbpf_rs::Result<()> {
    map.update(key, value, MapFlags::ANY)
}

/// Deletes entries, which may be absent: the map was full, or the kernel side has removed them.
fn forget(map: &impl MapCore, keys: impl IntoIterator<Item = impl AsRef<[u8]>>) {
    for key in keys {
        let _ = map.delete(key.as_ref());
    }
}

/// The time of process `pid` in a map of times.
fn time_in(times: &impl MapCore, pid: u32) -> Option<u64> {
    let value = times.lookup(&pid.to_ne_bytes(), MapFlags::ANY).ok()??;
    Some(u64::from_ne_bytes(value.try_into().ok()?))
}
