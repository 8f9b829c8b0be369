//! Settings of the BPF object, and the maps and programs to load.

use anyhow::{Context, Result};
use libbpf_rs::skel::OpenSkel;

use super::kind::AttachKind;
use super::recipe::recipe;
use super::skeleton::{OpenGpuprobeMaps, OpenGpuprobeSkel, types::rodata as Rodata};
use crate::live::{Target, TensorMode, TraceConfig};
use crate::probe::StackMode;
use gpuprobe_cuda::FUNCTIONS;

/// Applies the settings of a session, if it is for one, and selects the programs of an attachment kind.
pub(super) fn configure(
    open: &mut OpenGpuprobeSkel<'_>,
    config: Option<&TraceConfig>,
    kind: AttachKind,
) -> Result<()> {
    for (name, entries) in config.iter().flat_map(|it| &it.advanced.map_entries) {
        let mut maps = open.open_object_mut().maps_mut();
        let map = maps.find(|map| *map.name() == **name);
        let mut map = map.with_context(|| format!("there is no map {name}"))?;
        map.set_max_entries(entries.get())
            .with_context(|| format!("cannot resize the map {name}"))?;
    }
    select_maps(&mut open.maps, config)?;
    select_programs(open, config, kind);
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
    if let Some(config) = config {
        fill(rodata, config);
    }
    Ok(())
}

fn fill(rodata: &mut Rodata, config: &TraceConfig) {
    rodata.only_targets = config.target != Target::Everything;
    rodata.follow_children = follows_children(config);
    rodata.hold_targets = matches!(config.target, Target::Command(_));
    rodata.count_launches = config.modes.cudatrace;
    rodata.stream_launches = config.records_launches();
    rodata.launch_stacks = config.records_launches() && config.modes.activity;
    rodata.keep_ledger = config.modes.memleak;
    rodata.call_durations = config.record.is_some();
    rodata.take_python = takes_python(config);
    rodata.take_tensors = config.tensors != TensorMode::Off;
    rodata.take_copies = config.modes.bandwidth_util;
    rodata.stack_mode = config.stacks as u32;
}

/// Whether children of targets are targets.
pub(super) fn follows_children(config: &TraceConfig) -> bool {
    config.children || matches!(config.target, Target::Command(_))
}

fn takes_python(config: &TraceConfig) -> bool {
    config.python && config.stacks.is_on()
}

fn select_maps(maps: &mut OpenGpuprobeMaps<'_>, config: Option<&TraceConfig>) -> Result<()> {
    let has = |setting: fn(&TraceConfig) -> bool| config.is_some_and(setting);
    let stacks = has(|config| config.stacks.is_on());
    let learns = has(|config| config.stacks == StackMode::Auto);
    let python = has(takes_python);
    let requests = has(|config| config.tensors == TensorMode::Requested);
    for (map, is_needed) in [
        (&mut maps.launches, has(|config| config.modes.cudatrace)),
        (&mut maps.batch_ring, has(|config| config.modes.activity)),
        (&mut maps.stack_ring, stacks),
        (&mut maps.walks, stacks),
        (&mut maps.sent_walks, stacks),
        (&mut maps.pythons, python),
        (&mut maps.python_walks, python),
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

fn select_programs(
    open: &mut OpenGpuprobeSkel<'_>,
    config: Option<&TraceConfig>,
    kind: AttachKind,
) {
    let has = |setting: fn(&TraceConfig) -> bool| config.is_some_and(setting);
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
            ("batch", _) => has(|config| config.modes.activity),
            ("code_gone", _) => has(takes_python),
            ("tensor", "request") => has(|config| config.tensors == TensorMode::Requested),
            ("task", "fork") => has(follows_children),
            _ => true,
        };
        program.set_autoload(is_of_kind && is_needed);
    }
}
