//! Settings of the BPF object, and the maps and programs to load.

use super::kind::AttachKind;
use super::load::LoadSettings;
use super::recipe::recipe;
use super::skeleton::{
    OpenGpuprobeMaps, OpenGpuprobeProgs, OpenGpuprobeSkel, types::rodata as Rodata,
};
use crate::probe::StackMode;
use anyhow::{Context, Result};
use gpuprobe_cuda::FUNCTIONS;
use libbpf_rs::skel::OpenSkel;

/// Applies the settings and selects the programs of an attachment kind.
pub(super) fn configure(
    open: &mut OpenGpuprobeSkel<'_>,
    settings: &LoadSettings,
    kind: AttachKind,
) -> Result<()> {
    let object = open.open_object_mut();
    settings
        .map_entries
        .iter()
        .try_for_each(|map| map.apply(object))?;
    select_maps(&mut open.maps, settings)?;
    select_programs(&mut open.progs, settings, kind);
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
    fill(rodata, settings);
    for (half, size) in rodata
        .half_of_ring
        .iter_mut()
        .zip(rings.into_iter().chain([tensors]))
    {
        *half = size;
    }
    Ok(())
}

fn fill(rodata: &mut Rodata, settings: &LoadSettings) {
    rodata.only_targets = settings.only_targets;
    rodata.follow_children = settings.follow_children;
    rodata.hold_targets = settings.hold_targets;
    rodata.count_launches = settings.launches;
    rodata.stream_launches = settings.single_launches;
    rodata.launch_stacks = settings.launch_stacks;
    rodata.keep_ledger = settings.ledger;
    rodata.call_durations = settings.durations;
    rodata.take_python = with_python(settings);
    rodata.take_tensors = settings.tensors;
    rodata.take_copies = settings.copies;
    rodata.stack_mode = settings.stacks as u32;
    for (row, function) in rodata.recipes.iter_mut().zip(FUNCTIONS) {
        *row = recipe(function);
    }
}

fn with_python(settings: &LoadSettings) -> bool {
    settings.python && settings.stacks.is_on()
}

fn select_maps(maps: &mut OpenGpuprobeMaps<'_>, settings: &LoadSettings) -> Result<()> {
    let with_stacks = settings.stacks != StackMode::Off;
    let learns = settings.stacks == StackMode::Auto;
    for (map, is_needed) in [
        (&mut maps.launches, settings.launches),
        (&mut maps.batch_ring, settings.batches),
        (&mut maps.stack_ring, with_stacks),
        (&mut maps.walks, with_stacks),
        (&mut maps.sent_walks, with_stacks),
        (&mut maps.pythons, with_python(settings)),
        (&mut maps.python_walks, with_python(settings)),
        (&mut maps.known_python, with_python(settings)),
        (&mut maps.sent_python, with_python(settings)),
        (&mut maps.sent_copies, learns),
        (&mut maps.paths, learns),
        (&mut maps.code_maps, learns),
        (&mut maps.__bpf_usdt_specs, settings.requests),
        (&mut maps.__bpf_usdt_ip_to_spec_id, settings.requests),
    ] {
        map.set_autocreate(is_needed)?;
    }
    Ok(())
}

fn select_programs(progs: &mut OpenGpuprobeProgs<'_>, settings: &LoadSettings, kind: AttachKind) {
    let is = |one| kind == one;
    let (session, multi) = (is(AttachKind::Session), is(AttachKind::Multi));
    let perf = is(AttachKind::Perf);
    for (program, is_needed) in [
        (&mut progs.call_session, session),
        (&mut progs.call_entry_multi, multi),
        (&mut progs.call_return_multi, multi),
        (&mut progs.rendezvous_multi, session || multi),
        (&mut progs.entry_multi, session || multi),
        (
            &mut progs.batch_multi,
            settings.batches && (session || multi),
        ),
        (
            &mut progs.code_gone_multi,
            with_python(settings) && (session || multi),
        ),
        (&mut progs.code_gone_perf, with_python(settings) && perf),
        (&mut progs.call_entry_perf, perf),
        (&mut progs.call_return_perf, perf),
        (&mut progs.rendezvous_perf, perf),
        (&mut progs.entry_perf, perf),
        (&mut progs.batch_perf, settings.batches && perf),
        (&mut progs.tensor_request, settings.requests),
        (&mut progs.task_fork, settings.follow_children),
    ] {
        program.set_autoload(is_needed);
    }
}
