//! Settings of the BPF object, and the maps and programs to load.

use std::os::fd::AsFd;
use std::thread;

use anyhow::{Context, Result, anyhow};
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::{MapCore, MapHandle, MapType, libbpf_sys};

use super::kind::AttachKind;
use super::load::LoadSettings;
use super::recipe::recipe;
use super::skeleton::{OpenGpuprobeMaps, OpenGpuprobeSkel, types::rodata as Rodata};
use crate::probe::StackMode;
use gpuprobe_cuda::FUNCTIONS;

/// Applies the settings, and selects the programs of an attachment kind.
pub(super) fn configure(
    open: &mut OpenGpuprobeSkel<'_>,
    settings: &LoadSettings,
    kind: AttachKind,
) -> Result<()> {
    for (name, entries) in &settings.map_entries {
        let mut maps = open.open_object_mut().maps_mut();
        let map = maps.find(|map| *map.name() == **name);
        let mut map = map.with_context(|| format!("there is no map {name}"))?;
        map.set_max_entries(entries.get())
            .with_context(|| format!("cannot resize the map {name}"))?;
    }
    select_maps(&mut open.maps, settings)?;
    if !kind.is_one_by_one() {
        // Linux 6.6 or newer: earlier ones warn of maps that allocate in probes before 6.1.
        for map in [&mut open.maps.walks, &mut open.maps.python_walks] {
            map.set_map_flags(libbpf_sys::BPF_F_NO_PREALLOC)?;
        }
    }
    select_programs(open, settings, kind);
    let maps = &mut open.maps;
    // Half of the size of each ring: of the rest, a process gets half.
    let rings = [
        &maps.memory_ring,
        &maps.activity_ring,
        &maps.stack_ring,
        &maps.batch_ring,
        &maps.control_ring,
    ];
    let rings = rings.map(|ring| u64::from(ring.max_entries().div_ceil(2)));
    // Tensors get the third quarter of the memory ring at most.
    let tensors = rings[0] / 2;
    let rodata = maps.rodata_data.as_deref_mut();
    let rodata = rodata.context("the BPF object has no settings")?;
    let halves = rings.into_iter().chain([tensors]);
    for (half, bytes) in rodata.half_of_ring.iter_mut().zip(halves) {
        *half = bytes;
    }
    for (row, function) in rodata.recipes.iter_mut().zip(FUNCTIONS) {
        *row = recipe(function);
    }
    fill(rodata, settings);
    Ok(())
}

/// Creates the maps for which the kernel clears much memory, on a thread while `work` is done.
pub(super) fn create_beside(
    open: &mut OpenGpuprobeSkel<'_>,
    work: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let maps = open.open_object().maps().filter(|map| {
        let is_large = matches!(
            map.map_type(),
            MapType::RingBuf | MapType::Hash | MapType::LruHash | MapType::PercpuHash
        );
        is_large && map.autocreate()
    });
    let described = maps.map(|map| {
        let sizes = [map.key_size(), map.value_size(), map.max_entries()];
        (
            map.name().to_owned(),
            map.map_type(),
            sizes,
            map.map_flags(),
        )
    });
    let described: Vec<_> = described.collect();
    let create = || {
        let created = described.iter().filter_map(|(name, of, sizes, flags)| {
            let opts = libbpf_sys::bpf_map_create_opts {
                sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
                map_flags: *flags,
                ..Default::default()
            };
            let [key, value, entries] = *sizes;
            // Where it fails, loading tries again and fails with the reason.
            MapHandle::create(*of, Some(name), key, value, entries, &opts).ok()
        });
        created.collect::<Vec<_>>()
    };
    let created = thread::scope(|scope| {
        let created = scope.spawn(create);
        work()?;
        let created = created.join();
        created.map_err(|_| anyhow!("a thread that creates maps panicked"))
    })?;
    for mut map in open.open_object_mut().maps_mut() {
        let is_it = |created: &&MapHandle| created.name() == map.name();
        if let Some(created) = created.iter().find(is_it) {
            map.reuse_fd(created.as_fd())?;
        }
    }
    Ok(())
}

fn fill(rodata: &mut Rodata, settings: &LoadSettings) {
    rodata.only_targets = settings.only_targets;
    rodata.follow_children = settings.follow_children;
    rodata.hold_targets = settings.hold_targets;
    rodata.count_launches = settings.modes.cudatrace;
    rodata.stream_launches = settings.single_launches;
    rodata.launch_stacks = settings.single_launches && settings.modes.activity;
    rodata.keep_ledger = settings.modes.memleak;
    rodata.call_durations = settings.durations;
    rodata.take_python = settings.python;
    rodata.take_tensors = settings.tensors;
    rodata.take_copies = settings.modes.bandwidth_util;
    rodata.stack_mode = settings.stacks as u32;
}

fn select_maps(maps: &mut OpenGpuprobeMaps<'_>, settings: &LoadSettings) -> Result<()> {
    let (stacks, learns) = (settings.stacks.is_on(), settings.stacks == StackMode::Auto);
    let (python, requests) = (settings.python, settings.requests);
    for (map, is_needed) in [
        (&mut maps.launches, settings.modes.cudatrace),
        (&mut maps.batch_ring, settings.modes.activity),
        (&mut maps.stack_ring, stacks),
        (&mut maps.walks, stacks),
        (&mut maps.sent_walks, stacks),
        (&mut maps.pythons, python),
        (&mut maps.known_python, python),
        (&mut maps.sent_python, python),
        (&mut maps.sent_copies, learns),
        (&mut maps.paths, learns),
        (&mut maps.code_maps, learns),
        (&mut maps.__bpf_usdt_specs, requests),
        (&mut maps.__bpf_usdt_ip_to_spec_id, requests),
    ] {
        map.set_autocreate(is_needed)?;
    }
    Ok(())
}

fn select_programs(open: &mut OpenGpuprobeSkel<'_>, settings: &LoadSettings, kind: AttachKind) {
    for mut program in open.open_object_mut().progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let (what, way) = name.rsplit_once('_').unwrap_or_default();
        let is_of_kind = match (kind, way) {
            // A session has one program for calls, and its own for nothing else.
            (AttachKind::Session, "multi") => !what.starts_with("call_"),
            (_, "session") => kind == AttachKind::Session,
            (_, "multi") => kind == AttachKind::Multi,
            (_, "perf") => kind == AttachKind::Perf,
            _ => true,
        };
        let is_needed = match (what, way) {
            ("batch", _) => settings.modes.activity,
            ("code_gone", _) => settings.python,
            ("tensor", "request") => settings.requests,
            ("tensor", _) => settings.tensors,
            ("task", "fork") => settings.follow_children,
            _ => true,
        };
        program.set_autoload(is_of_kind && is_needed);
    }
}
