//! Settings of the BPF object, and the maps and programs to load.

use std::ffi::OsString;

use anyhow::{Context, Result};
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::{MapHandle, MapType, libbpf_sys};

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

/// A map for which the kernel may clear much memory.
pub(super) struct LargeMap {
    name: OsString,
    of: MapType,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
}

impl LargeMap {
    /// Those of an object, which has small ones instead.
    pub(super) fn all(open: &mut OpenGpuprobeSkel<'_>) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        for mut map in open.open_object_mut().maps_mut() {
            let is_large = matches!(
                map.map_type(),
                MapType::RingBuf | MapType::Hash | MapType::LruHash | MapType::PercpuHash
            );
            if is_large && map.autocreate() {
                all.push(Self {
                    name: map.name().to_owned(),
                    of: map.map_type(),
                    key_size: map.key_size(),
                    value_size: map.value_size(),
                    max_entries: map.max_entries(),
                    flags: map.map_flags(),
                });
                map.set_max_entries(1)?;
            }
        }
        Ok(all)
    }

    pub(super) fn create(&self) -> Result<MapHandle> {
        let opts = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
            map_flags: self.flags,
            ..Default::default()
        };
        let (sizes, entries) = ((self.key_size, self.value_size), self.max_entries);
        let created =
            MapHandle::create(self.of, Some(&self.name), sizes.0, sizes.1, entries, &opts);
        created.with_context(|| format!("the kernel rejected the BPF map {:?}", self.name))
    }
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
            ("launch", _) => settings.modes.cudatrace,
            ("tensor", "request") => settings.requests,
            ("tensor", _) => settings.tensors,
            ("task", "fork") => settings.follow_children,
            _ => true,
        };
        program.set_autoload(is_of_kind && is_needed);
    }
}
