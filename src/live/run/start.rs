//! The start of a session.

use super::super::announce::Announced;
use super::super::collector::Collector;
use super::super::filter::EventFilter;
use super::super::hook::Hooks;
use super::super::incidents::AnnouncedIncidents as ReportedIncidents;
use super::super::output::Output;
use super::super::samples::Samples;
use super::super::sink::Sink;
use super::super::stacks::StackState;
use super::super::top::TopSession;
use super::super::{Target, TraceConfig, Tracer, recorder};
use super::Run;
use super::documents::DocumentState;
use crate::host::exit::AwaitedProcess;
use crate::host::host_info::ProcFs;
use crate::host::process::ProcessHandle;
use crate::live::discovery::{Order, Orders};
use crate::probe::{Probe, Rings, StackMode};
use crate::serve::Serving;
use anyhow::{Context, Result};
use gpuprobe_engine::{Ledger, State};
use gpuprobe_model::Lost;
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::event;
use gpuprobe_recording::Recorder;
use gpuprobe_recording::frames::RecordedFrames;
use gpuprobe_report as report;
use gpuprobe_report::gate::Gate;
use gpuprobe_stacks::helper::{FileReader, HelperHost, Opener, ProcessReader};
use gpuprobe_views::profile::Outputs;
use std::collections::HashMap;
use std::sync::mpsc;
use tokio::time::Instant;

impl<'a> Run<'a> {
    pub(super) fn start(config: &'a TraceConfig) -> Result<Self> {
        let output = Output::open(config)?;
        // Before the capabilities are dropped, which its files need; its messages are then on the screen.
        let top = config.screens.as_ref().map(TopSession::start).transpose()?;
        let profiles = Outputs::open(&config.profiles, None)?;
        let gate = config.gate.as_ref().map(Gate::open).transpose()?;
        let processes = processes(&config.target)?;
        let listen = config.serve.as_ref().map(|serve| serve.listen.bind());
        let socket = listen.transpose()?;
        // The helpers start while the BPF programs are loaded.
        let (reader, memory) = readers();
        let clock = WallClock::now();
        let sample_every = config.record.as_ref().and_then(|it| it.sample_every);
        let samples = sample_every.map(Samples::start).transpose()?;
        let (orders, receiver) = mpsc::channel();
        let recorder = recorder::open(config, clock)?;
        let mut sink = sink(config, recorder, &reader, &memory, orders.clone())?;
        let queue = (orders, receiver);
        let helpers = (reader, memory.opener());
        let attached = AttachedTracer::start(config, &processes, helpers, queue, &mut sink.stacks)
            .inspect_err(|_| sink.input_recorder.discard())?;
        // Before the capabilities are dropped, which hooks need.
        let start = |command| Hooks::start(command, config.advanced.as_root);
        let hooks = config.advanced.on_oom.clone().map(start).transpose();
        let hooks = hooks.inspect_err(|_| sink.input_recorder.discard())?;
        // After the last fork, which would have its connections, too.
        let served = config.serve.as_ref().zip(socket);
        let serving = served.map(|(config, socket)| Serving::start(config, socket));
        let serving = serving.transpose();
        let serving = serving.inspect_err(|_| sink.input_recorder.discard())?;
        Ok(Self {
            config,
            output,
            gate,
            profiles: Some(profiles).filter(Outputs::any),
            tracer: attached.tracer,
            rings: attached.rings,
            sink,
            started: Instant::now(),
            reported: Instant::now(),
            counted: Instant::now(),
            link: None,
            contexts: HashMap::new(),
            history: report::History::default(),
            untraced: HashMap::new(),
            clock,
            processes: processes.into_iter().map(AwaitedProcess::new).collect(),
            guard: None,
            collector: attached.collector,
            samples,
            announced: Announced::default(),
            reported_incidents: ReportedIncidents::with(hooks),
            lost: Lost::default(),
            recorded_frames: RecordedFrames::default(),
            lost_said: Lost::default(),
            leaks: false,
            lacks_ends: false,
            searched: Instant::now(),
            serving,
            served: config.serve.as_ref().map(DocumentState::new),
            names_until: None,
            top,
        })
    }
}

/// The parts of a session that need its BPF programs.
struct AttachedTracer {
    tracer: Tracer,
    collector: Option<Collector>,
    rings: Rings,
}

impl AttachedTracer {
    fn start(
        config: &TraceConfig,
        processes: &[ProcessHandle],
        helpers: (FileReader, Opener),
        queue: (Orders, mpsc::Receiver<Order>),
        stacks: &mut Option<StackState>,
    ) -> Result<Self> {
        let prepare = |probe: &Probe, pid: u32| {
            if let Some(stacks) = stacks {
                stacks.read_mappings(pid);
                stacks.send_updates(probe);
            }
        };
        let tracer = Tracer::start(config, processes, helpers, queue, prepare)?;
        let collect = config.collect.as_ref();
        let collector = collect.map(|collect| Collector::start(collect, &tracer.probe));
        let rings = tracer.probe.rings()?;
        Ok(Self {
            collector: collector.transpose()?,
            tracer,
            rings,
        })
    }
}

fn readers() -> (FileReader, ProcessReader) {
    let host = HelperHost::Process;
    (FileReader::new(host), ProcessReader::new(host))
}

/// The processes that are targets by id, without duplicates.
fn processes(target: &Target) -> Result<Vec<ProcessHandle>> {
    let Target::Processes(pids) = target else {
        return Ok(Vec::new());
    };
    let mut found: Vec<ProcessHandle> = Vec::new();
    for &pid in pids {
        let process =
            ProcessHandle::of(pid).with_context(|| format!("there is no process with id {pid}"))?;
        if !found.iter().any(|known| known.pid == process.pid) {
            found.push(process);
        }
    }
    Ok(found)
}

/// The consumer of all rings.
fn sink(
    config: &TraceConfig,
    input_recorder: Recorder,
    reader: &FileReader,
    memory: &ProcessReader,
    orders: Orders,
) -> Result<Sink> {
    let mut state = State {
        ledger: Ledger::counting(config.kinds),
        ..State::default()
    };
    state.watch(input_recorder.is_recording());
    Ok(Sink {
        modes: config.modes,
        state,
        filter: EventFilter::new(config.filter.clone()),
        host_info: ProcFs::open(reader.clone(), memory.clone()),
        decoder: event::RecordDecoder::default(),
        undecodable: 0,
        copies: config.per_call.then(Vec::new),
        records: config.single_records.then(Vec::new),
        stacks: (config.stacks != StackMode::Off)
            .then(|| {
                let is_recording = input_recorder.is_recording();
                let (reader, memory) = (reader.clone(), memory.clone());
                StackState::new(is_recording, config.python, reader, memory, orders)
            })
            .transpose()?,
        input_recorder,
    })
}
