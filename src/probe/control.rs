//! Talking to the loaded programs: their maps and globals.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use zerocopy::{FromBytes, IntoBytes};

use super::load::Probe;
use super::lost;
use super::rings::{Image, Rings};
use crate::probe::StackMode;
use gpuprobe_model::abi::{RawCode, RawLaunchCount, RawLaunchKey, RawPath, RawPython};
use gpuprobe_model::clock;
use gpuprobe_model::{Lost, UserLoss};

impl Probe {
    /// Opens the rings. There may be one reader only.
    ///
    /// # Errors
    /// Those of mapping the rings.
    pub fn rings(&self) -> Result<Rings> {
        let maps = &self.skeleton.maps;
        let stack_ring = (self.stacks != StackMode::Off).then_some(&maps.stack_ring as _);
        let batch_ring = self.batches.then_some(&maps.batch_ring as _);
        Rings::open(
            &maps.memory_ring,
            &maps.activity_ring,
            &maps.control_ring,
            stack_ring,
            batch_ring,
        )
    }

    /// Adds a process to those that are traced.
    ///
    /// # Errors
    /// The map is full.
    pub fn add_target(&self, pid: u32) -> Result<()> {
        let one = 1u32.to_ne_bytes();
        let targets = &self.skeleton.maps.targets;
        targets
            .update(&pid.to_ne_bytes(), &one, MapFlags::ANY)
            .with_context(|| format!("cannot add process {pid} to the traced ones"))
    }

    /// What a process that calls it does to be traced. It may be called between fork and exec: it
    /// makes one system call and allocates nothing.
    ///
    /// # Errors
    /// Those of duplicating a descriptor.
    pub fn becomes_target(&self) -> Result<impl Fn() -> io::Result<()> + Send + Sync + use<>> {
        let targets = MapHandle::try_from(&self.skeleton.maps.targets)?;
        Ok(move || {
            let (own_pid, one) = (std::process::id().to_ne_bytes(), 1u32.to_ne_bytes());
            let entered = targets.update(&own_pid, &one, MapFlags::ANY);
            entered.map_err(|_| io::Error::from(io::ErrorKind::PermissionDenied))
        })
    }

    /// Whether any process is left that is traced by its id.
    pub fn has_targets(&self) -> bool {
        self.skeleton.maps.targets.keys().next().is_some()
    }

    /// The map of processes that are traced by their id.
    pub fn targets_map(&self) -> BorrowedFd<'_> {
        self.skeleton.maps.targets.as_fd()
    }

    /// Removes a process from those that are traced.
    pub fn remove_target(&self, pid: u32) {
        // It is not there when the process has ended meanwhile.
        let _ = self.skeleton.maps.targets.delete(&pid.to_ne_bytes());
    }

    /// Tells the kernel side that every library known so far is probed: threads that start from
    /// now on are seen from their first call.
    ///
    /// # Errors
    /// None in practice: the settings are mapped memory.
    pub fn all_attached(&mut self) -> Result<()> {
        self.bss()?.attached_boot_ns = clock::boot_ns();
        Ok(())
    }

    /// Tells the kernel side that the dynamic loader of `image` is probed: processes that begin to
    /// run it need not be looked at.
    pub fn image_known(&self, image: Image) {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&image.inode.to_ne_bytes());
        key[8..].copy_from_slice(&image.device.to_ne_bytes());
        let one = 1u32.to_ne_bytes();
        if let Err(error) = self
            .skeleton
            .maps
            .known_images
            .update(&key, &one, MapFlags::ANY)
        {
            tracing::debug!("a program will be looked at again: {error}");
        }
    }

    /// Tells the kernel side that no loader is known to be probed: every program that begins is to be looked
    /// at.
    pub fn forget_images(&self) {
        let images = &self.skeleton.maps.known_images;
        let known: Vec<_> = images.keys().collect();
        for image in known {
            // It may have been forgotten already.
            let _ = images.delete(&image);
        }
    }

    /// Tells the kernel side that `pid` is about to be looked at: what it maps from now on is to be
    /// noticed again.
    pub fn about_to_look_at(&self, pid: u32) {
        // It is not there if the process has begun a program, or ended.
        let _ = self.skeleton.maps.noticed.delete(&pid.to_ne_bytes());
    }

    /// Tells the kernel side that `pid` may have used a library that is probed only now.
    pub fn seen_late(&mut self, pid: u32) {
        let now = clock::boot_ns();
        let late = &self.skeleton.maps.late_views;
        let updated = late.update(&pid.to_ne_bytes(), &now.to_ne_bytes(), MapFlags::ANY);
        if let Err(error) = updated {
            // It is full. What every thread did until now counts as unseen: devices that were
            // chosen before are unknown, which is better than wrong.
            tracing::debug!("every process is seen late, as {pid} has no room: {error}");
            match self.bss() {
                Ok(settings) => settings.attached_boot_ns = now,
                Err(error) => tracing::warn!("devices of process {pid} may be wrong: {error:#}"),
            }
        }
    }

    /// Hands every counted kernel and graph to `take`: its key, launches that ran, and launches
    /// that went into a graph, over all CPUs. Keys for which it returns false are forgotten.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn launches(&mut self, mut take: impl FnMut(RawLaunchKey, u64, u64) -> bool) -> Result<()> {
        let map = &self.skeleton.maps.launches;
        let mut done_with = Vec::new();
        for bytes in map.keys() {
            let Ok(key) = RawLaunchKey::read_from_bytes(&bytes) else {
                continue;
            };
            let Some(shares) = map.lookup_percpu(&bytes, MapFlags::ANY)? else {
                continue;
            };
            let (mut runs, mut captured, mut user) = (0, 0, 0);
            for share in shares {
                if let Ok((share, _)) = RawLaunchCount::read_from_prefix(&share) {
                    runs += share.runs;
                    captured += u64::from(share.captured);
                    user = share.user.max(user);
                }
            }
            if !take(key, runs, captured) {
                done_with.push((bytes, user));
            }
        }
        for (key, _) in &done_with {
            map.delete(key).context("cannot forget a kernel")?;
        }
        let bss = self.bss()?;
        for (_, user) in done_with {
            if let Some(user) = bss.users.get_mut(user as usize) {
                user.launches_removed = user.launches_removed.wrapping_add(1);
            }
        }
        Ok(())
    }

    /// To be called before the rings are read, so that the next full batch wakes us again.
    pub fn about_to_read(&mut self) {
        if let Ok(bss) = self.bss() {
            bss.wake_pending = [0; 4];
        }
    }

    /// Enters how known call paths go on, by the states that they have reached.
    ///
    /// # Errors
    /// The map is full.
    pub fn enter_paths(&self, paths: &[(u64, RawPath)]) -> Result<()> {
        for (state, path) in paths {
            let map = &self.skeleton.maps.paths;
            map.update(&state.to_ne_bytes(), path.as_bytes(), MapFlags::ANY)
                .context("cannot enter a call path")?;
        }
        Ok(())
    }

    /// Enters where process `pid` has code.
    ///
    /// # Errors
    /// The map is full: more stacks of the process than needed are copied.
    pub fn enter_code(&self, pid: u32, code: &RawCode) -> Result<()> {
        if self.stacks != StackMode::Auto {
            return Ok(());
        }
        let map = &self.skeleton.maps.code_maps;
        map.update(&pid.to_ne_bytes(), code.as_bytes(), MapFlags::ANY)
            .with_context(|| format!("cannot enter where process {pid} has code"))
    }

    /// Forgets where process `pid` has code.
    pub fn forget_code(&self, pid: u32) {
        if self.stacks == StackMode::Auto {
            // It is not there if the map was full.
            let _ = self.skeleton.maps.code_maps.delete(&pid.to_ne_bytes());
        }
    }

    /// Enters how the interpreter of process `pid` is to be read.
    ///
    /// # Errors
    /// The map is full.
    pub fn enter_python(&self, pid: u32, python: &RawPython) -> Result<()> {
        let map = &self.skeleton.maps.pythons;
        map.update(&pid.to_ne_bytes(), python.as_bytes(), MapFlags::ANY)
            .with_context(|| format!("cannot enter the interpreter of process {pid}"))
    }

    /// Forgets how call paths go on from these states.
    pub fn forget_paths(&self, states: impl IntoIterator<Item = u64>) {
        for state in states {
            // It is not there if the map was full.
            let _ = self.skeleton.maps.paths.delete(&state.to_ne_bytes());
        }
    }

    /// Forgets that copies were sent of stacks that look like this.
    pub fn forget_copies(&self, looks: impl IntoIterator<Item = u64>) {
        for looks in looks {
            // It may have been forgotten already.
            let _ = self.skeleton.maps.sent_copies.delete(&looks.to_ne_bytes());
        }
    }

    /// What the kernel side has lost so far.
    pub fn lost(&mut self) -> Lost {
        self.bss()
            .map_or(Lost::default(), |bss| lost::all(&bss.losses))
    }

    /// The same by user and process.
    pub fn lost_by_user(&self) -> Vec<UserLoss> {
        let map = &self.skeleton.maps.user_losses;
        let loss = |key: Vec<u8>| {
            let value = map.lookup(&key, MapFlags::ANY).ok()??;
            lost::of_user(&key, &value)
        };
        map.keys().filter_map(loss).collect()
    }

    pub(super) fn bss(&mut self) -> Result<&mut super::skeleton::types::bss> {
        let bss = self.skeleton.maps.bss_data.as_deref_mut();
        bss.context("the BPF object has no mapped globals")
    }
}
