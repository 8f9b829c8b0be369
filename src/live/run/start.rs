//! The start of a session.

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use anyhow::{Context, Result};

use super::documents::Served;
use super::reading::Reading;
use super::snapshot::Snapshots;
use super::windows::Windows;
use super::{Run, TopSession};
use crate::host::exit::AwaitedProcess;
use crate::host::host_info::ProcFs;
use crate::host::process::ProcessHandle;
use crate::live::announce::Announced;
use crate::live::collector::Collector;
use crate::live::discovery::{Tracer, load_settings};
use crate::live::filter::EventFilter;
use crate::live::hook::{Hooks, OnOom};
use crate::live::incidents::Incidents;
use crate::live::output::Output;
use crate::live::samples::Samples;
use crate::live::sink::Sink;
use crate::live::stacks::StackState;
use crate::live::{Target, TraceConfig, recorder};
use crate::probe::{Probe, Records, StackMode, arm64};
use gpuprobe_engine::{Ledger, State};
use gpuprobe_model::Lost;
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::event;
use gpuprobe_recording::Recorder;
use gpuprobe_recording::frames::RecordedFrames;
use gpuprobe_report::gate::Gate;
use gpuprobe_stacks::helper::{FileReader, HelperHost, ProcessReader};
use gpuprobe_views::profile::Outputs;

impl<'a> Run<'a> {
    pub(super) fn start(config: &'a TraceConfig) -> Result<Self> {
        let output = Output::open(config)?;
        // Before the capabilities are dropped, which its files need; its messages are then on the screen.
        let top = config.screens.as_ref().map(TopSession::start).transpose()?;
        let profiles = Outputs::open(&config.profiles, None)?;
        let gate = config.gate.as_ref().map(Gate::open).transpose()?;
        let processes = processes(&config.target)?;
        let served = config.serve.as_ref().map(Served::start).transpose()?;
        let clock = WallClock::now();
        let sample_every = config.record.as_ref().and_then(|it| it.sample_every);
        let samples = sample_every.map(Samples::start);
        let of_processes = config.modes.memleak.then(Samples::of_processes);
        let samples = samples.into_iter().chain(of_processes);
        let samples = samples.collect::<Result<_>>()?;
        // Before the capabilities are dropped, which hooks need.
        let on_oom = config.advanced.on_oom.clone();
        let takes_snapshots = on_oom == Some(OnOom::Snapshot);
        let hooks = match on_oom {
            Some(OnOom::Run(command)) => Some(Hooks::start(command, config.advanced.as_root)?),
            _ => None,
        };
        let (orders, receiver) = mpsc::channel();
        let mut recorder = recorder::open(config, clock)?;
        let is_recording = recorder.is_recording();
        let attach = || -> Result<_> {
            arm64::permit(std::env::consts::ARCH, config.advanced.allow_arm64)?;
            let helpers = || {
                let files = FileReader::new(HelperHost::Process);
                (files, ProcessReader::new(HelperHost::Process))
            };
            // The rings are mapped while the self-test waits.
            let begin = |probe: &Arc<Probe>, helpers: &(FileReader, ProcessReader)| {
                let (helpers, orders) = (helpers.clone(), orders.clone());
                let start =
                    || StackState::start(is_recording, config.python, helpers, probe, orders);
                let stacks = (config.stacks != StackMode::Off).then(start).transpose()?;
                let tasks = stacks.as_ref().map(|stacks| stacks.tasks.clone());
                let last_ns = tasks.as_ref().map(|tasks| Arc::clone(&tasks.last_ns));
                let take = move |records: Arc<Records>| {
                    if let Some(tasks) = &tasks {
                        tasks.send(move |thread| thread.take(&records));
                    }
                };
                let rings = probe.rings((Box::new(take), last_ns.unwrap_or_default()))?;
                Ok((rings, stacks))
            };
            let loaded = Probe::load(&load_settings(config), helpers, begin)?;
            let (probe, helpers, (rings, stacks)) = loaded;
            let tasks = stacks.as_ref().map(|stacks| stacks.tasks.clone());
            let read = helpers.clone();
            let orders = (orders.clone(), receiver);
            let loaded = Arc::clone(&probe);
            let tracer = Tracer::start(config, loaded, &processes, read, orders, tasks)?;
            let collect = config.collect.as_ref();
            let collector = collect.map(|collect| Collector::start(collect, &probe));
            Ok((rings, collector.transpose()?, tracer, stacks, helpers))
        };
        let attached = attach().inspect_err(|_| recorder.discard())?;
        let (rings, collector, tracer, stacks, (files, memory)) = attached;
        let host_info = ProcFs::open(files, memory);
        let sink = sink(config, recorder, host_info, stacks);
        Ok(Self {
            config,
            reading: Reading {
                config,
                tracer,
                rings,
                sink,
                clock,
                incidents: Incidents::new(hooks, takes_snapshots),
                lost: Lost::default(),
                recorded_frames: RecordedFrames::default(),
                names_until: None,
                samples,
                announced: Announced::default(),
                counted: Instant::now(),
                windows: Windows::default(),
            },
            snapshots: Snapshots::new(),
            output,
            gate,
            judged: None,
            watch: config.explains.then(super::watch::Watch::start),
            profiles: Some(profiles).filter(Outputs::any),
            served,
            top,
            processes: processes.into_iter().map(AwaitedProcess::new).collect(),
            guard: None,
            collector,
        })
    }
}

/// The processes that are targets by id, without duplicates.
fn processes(target: &Target) -> Result<Vec<ProcessHandle>> {
    let Target::Processes(pids) = target else {
        return Ok(Vec::new());
    };
    let handle = |pid: &u32| {
        ProcessHandle::of(*pid).with_context(|| format!("there is no process with id {pid}"))
    };
    BTreeSet::from_iter(pids).into_iter().map(handle).collect()
}

/// The consumer of all rings.
fn sink(
    config: &TraceConfig,
    input_recorder: Recorder,
    host_info: ProcFs,
    stacks: Option<StackState>,
) -> Sink {
    let mut state = State {
        ledger: Ledger::counting(config.kinds),
        ..State::default()
    };
    state.watch(input_recorder.is_recording());
    Sink {
        modes: config.modes,
        state,
        filter: EventFilter::new(config.filter.clone()),
        host_info,
        decoder: event::RecordDecoder::default(),
        undecodable: 0,
        copies: config.per_call.then(Vec::new),
        records: config.single_records.then(Vec::new),
        stacks,
        input_recorder,
    }
}
