//! Metrics of a made-up host: the engine's state is fed with events, as in a run.

use std::time::Duration;

use super::*;
use crate::View;
use crate::{Options, ReportSources};
use gpuprobe_cuda::{FUNCTIONS, Modes};
use gpuprobe_engine::State;
use gpuprobe_model::abi::RawLaunchKey;
use gpuprobe_model::event::{Call, Copy, Event, Task};
use gpuprobe_model::identity::{DeviceIdentity, Identity};
use gpuprobe_model::stack::{CallStack, Frame, Location, Symbolize, bare_frame};
use gpuprobe_model::{GpuUsage, Lost, Untraced};

const CONTAINER: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const POD: &str = "90d81341-92de-11e7-8cf2-507b9d4141fa";

/// Frames with a name for each address.
struct Named;

impl Symbolize for Named {
    fn frames(&self, _: u32, location: &Location, _: bool) -> Vec<Frame> {
        vec![Frame {
            function: format!("f{}", location.address),
            ..bare_frame(location)
        }]
    }
}

/// A host with traced processes.
#[derive(Default)]
struct Host {
    state: State,
    time_ns: u64,
    address: u64,
    lost: Lost,
    usage: GpuUsage,
    /// The processes that got names and verdicts by the last update.
    described: HashSet<u32>,
}

fn row(symbol: &str) -> u16 {
    let row = FUNCTIONS.iter().position(|f| f.symbol == symbol).unwrap();
    row.try_into().unwrap()
}

/// The kernel side's number of a process.
fn number(pid: u32) -> u32 {
    pid << gpuprobe_model::abi::PROCESS_PID_SHIFT
}

impl Host {
    fn task(&mut self, pid: u32, comm: &str) -> Task {
        self.time_ns += 1;
        Task {
            pid,
            tid: pid,
            uid: 1000,
            process: number(pid),
            from_birth: true,
            inner_pid: pid,
            cgroup: 0,
            time_ns: self.time_ns,
            comm: comm.to_owned(),
        }
    }

    fn begin(&mut self, pid: u32, comm: &str) {
        let event = Event::Process(self.task(pid, comm));
        let identity = Identity {
            command: Some("secret --password 0123".to_owned()),
            cgroup: Some(format!("/kubepods/burstable/pod{POD}/{CONTAINER}")),
            container: Some(CONTAINER.to_owned()),
            devices: vec![DeviceIdentity {
                physical_index: Some(3),
                uuid: Some("GPU-3".to_owned()),
            }],
            ..Identity::default()
        };
        self.state.ledger.apply(&event, |_| identity);
        self.state.launches.apply(&event, |_, _| None);
        self.state
            .transfers
            .apply(&event, &self.state.ledger, |_, _| None);
    }

    fn end(&mut self, pid: u32) {
        let event = Event::Exit(self.task(pid, ""));
        self.state.ledger.apply(&event, |_| Identity::default());
        self.state.launches.apply(&event, |_, _| None);
        self.state
            .transfers
            .apply(&event, &self.state.ledger, |_, _| None);
    }

    fn alloc(&mut self, pid: u32, symbol: &str, size_bytes: u64) {
        self.address += 1 << 30;
        self.time_ns += 1;
        let row = row(symbol);
        let call = Call {
            pid,
            tid: pid,
            row,
            function: &FUNCTIONS[usize::from(row)],
            result: 0,
            captured: false,
            start_ns: self.time_ns,
            end_ns: self.time_ns,
            address: 0x7f00_0000_0000 + self.address,
            size_bytes,
            device: Some(0),
            context: 0,
            stack: 0,
            detail: None,
        };
        self.state
            .ledger
            .apply(&Event::Call(call), |_| Identity::default());
    }

    fn launches(&mut self, pid: u32, handle: u64, runs: u64) {
        let key = RawLaunchKey {
            handle,
            process: number(pid),
            row: row("cuLaunchKernel"),
            epoch: 0,
        };
        self.state.launches.set_counts(key, runs, 0);
    }

    fn copy(&mut self, pid: u32, bytes: u64) {
        self.copy_at(pid, bytes, 0);
    }

    fn copy_at(&mut self, pid: u32, bytes: u64, stack: u64) {
        self.time_ns += 1;
        let location = Location {
            address: stack,
            module: None,
            offset: 0,
        };
        let call_stack = CallStack {
            locations: vec![location],
            is_complete: true,
        };
        let ledger = &mut self.state.ledger;
        ledger.set_stack(pid, stack, call_stack.into());
        let row = row("cuMemcpyHtoD_v2");
        let copy = Copy {
            row,
            function: &FUNCTIONS[usize::from(row)],
            result: 0,
            pid,
            tid: pid,
            start_ns: self.time_ns,
            end_ns: self.time_ns,
            bytes,
            destination: 0,
            source: 0,
            kind: 0,
            destination_type: 0,
            captured: false,
            stack,
        };
        let ledger = &self.state.ledger;
        self.state
            .transfers
            .apply(&Event::Copy(copy), ledger, |_, _| None);
    }

    /// Takes in the state, as between two scrapes.
    fn served(&mut self, metrics: &mut Metrics) -> Served {
        let options = Options {
            modes: Modes {
                memleak: true,
                cudatrace: true,
                bandwidth_util: true,
                activity: false,
            },
            top: None,
            view: View::default(),
            allocations: false,
            explains: true,
            stacks: true,
            host_wide: true,
            now_ns: self.time_ns,
            detail: None,
            only_detail: false,
            is_final: false,
            since_last: Duration::from_secs(1),
            since_start: Duration::from_secs(1),
            link: None,
        };
        let scope = metrics.scope(&self.state);
        let sources = ReportSources {
            usage: Some(&self.usage),
            scope: Some(scope),
            ..ReportSources::of_file(None, &Named)
        };
        self.described = scope.due.keys().copied().collect();
        let report = crate::build(&self.state, self.lost, &options, sources);
        metrics.update(&report, &OwnUse::default());
        self.state.mark_reported();
        families(metrics)
    }
}

/// Values by metric and label set.
type Served = BTreeMap<&'static str, BTreeMap<Labels, u64>>;

fn families(metrics: &Metrics) -> Served {
    let mut served = Served::new();
    for (metric, all) in metrics.families.iter() {
        let named = METRICS
            .lines()
            .any(|line| line.starts_with(&format!("{metric} ")));
        assert!(named, "{metric} has no description");
        let series = served.entry(*metric).or_default();
        for (process, labels, value) in all {
            let labels = [&process[..], &labels[..]].concat();
            assert_eq!(series.insert(labels, *value), None, "{metric:?} twice");
        }
    }
    served
}

/// Sum of the series with these labels.
fn sum(families: &Served, metric: &str, labels: &[(&str, &str)]) -> u64 {
    let series = families.get(metric).into_iter().flatten();
    let has = |set: &Labels| {
        labels
            .iter()
            .all(|wanted| set.iter().any(|(name, value)| (*name, &**value) == *wanted))
    };
    series
        .filter(|(set, _)| has(set))
        .map(|(_, value)| *value)
        .sum()
}

fn count(families: &Served, metric: &str) -> usize {
    families.get(metric).map_or(0, BTreeMap::len)
}

#[test]
fn memory_is_by_process_gpu_and_kind() {
    let mut host = Host::default();
    host.begin(7, "train");
    host.alloc(7, "cudaMalloc", 100);
    host.alloc(7, "cudaMalloc", 20);
    host.alloc(7, "cudaMallocManaged", 3);
    host.alloc(7, "cudaMallocHost", 5);
    host.usage.processes.insert(400, vec![(3, 1 << 30)]);
    host.usage.untraced.insert(400, Untraced::default());
    host.lost.memory = 2;
    let families = host.served(&mut Metrics::default());
    let lost = sum(
        &families,
        "gpuprobe_lost_events_total",
        &[("what", "memory")],
    );
    assert_eq!(lost, 2);
    let who = [
        ("gpu_uuid", "GPU-3"),
        ("gpu", "3"),
        ("pid", "7"),
        ("comm", "train"),
        ("uid", "1000"),
        ("container_id", CONTAINER),
        ("pod_uid", POD),
    ];
    for (kind, bytes, allocations) in [("device", 120, 2), ("managed", 3, 1)] {
        let labels = [&who[..], &[("kind", kind)]].concat();
        assert_eq!(sum(&families, "gpuprobe_gpu_memory_bytes", &labels), bytes);
        assert_eq!(
            sum(&families, "gpuprobe_gpu_memory_allocations", &labels),
            allocations
        );
    }
    assert_eq!(count(&families, "gpuprobe_gpu_memory_bytes"), 2);
    let host_memory = [("pid", "7"), ("kind", "pinned")];
    assert_eq!(
        sum(&families, "gpuprobe_host_memory_bytes", &host_memory),
        5
    );
    assert_eq!(sum(&families, "gpuprobe_alloc_calls_total", &[]), 4);
    assert_eq!(sum(&families, "gpuprobe_traced_processes", &[]), 1);
    let untraced = [("pid", "400"), ("gpu", "3")];
    assert_eq!(
        sum(&families, "gpuprobe_process_gpu_used_bytes", &untraced),
        1 << 30
    );
    let served: usize = families.values().map(BTreeMap::len).sum();
    assert_eq!(sum(&families, "gpuprobe_series", &[]), served as u64);
}

#[test]
fn no_address_and_no_command_is_served() {
    let mut host = Host::default();
    host.begin(7, "train");
    host.alloc(7, "cudaMalloc", 100);
    host.launches(7, 0x7f12_3456_7890, 3);
    let text = format!("{:?}", host.served(&mut Metrics::default()));
    assert!(text.contains(r#"("kernel", "unknown")"#), "{text}");
    for secret in ["0x", "7f12", "139", "secret", "password"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

#[test]
fn series_end_with_their_process_and_those_of_the_node_go_on() {
    let mut host = Host::default();
    let mut metrics = Metrics::default();
    host.begin(7, "train");
    host.alloc(7, "cudaMalloc", 100);
    host.launches(7, 1, 3);
    host.copy(7, 1000);
    let pid = [("pid", "7")];
    let families = host.served(&mut metrics);
    assert_eq!(sum(&families, "gpuprobe_kernel_launches_total", &pid), 3);
    assert_eq!(sum(&families, "gpuprobe_copy_bytes_total", &pid), 1000);
    host.launches(7, 1, 5);
    host.copy(7, 1);
    host.end(7);
    for _ in 0..2 {
        let families = host.served(&mut metrics);
        for metric in [
            "gpuprobe_gpu_memory_bytes",
            "gpuprobe_kernel_launches_total",
            "gpuprobe_copy_bytes_total",
        ] {
            assert_eq!(count(&families, metric), 0, "{metric}");
        }
        assert_eq!(
            sum(&families, "gpuprobe_node_kernel_launches_total", &[]),
            5
        );
        assert_eq!(sum(&families, "gpuprobe_node_copy_bytes_total", &[]), 1001);
        assert_eq!(sum(&families, "gpuprobe_node_copies_total", &[]), 2);
    }
}

#[test]
fn the_call_sites_of_copies_are_few_and_have_exact_counts() {
    let mut host = Host::default();
    host.begin(7, "train");
    host.alloc(7, "cudaMalloc", 100);
    let limits = MetricLimits {
        sites: 2,
        ..MetricLimits::default()
    };
    let mut metrics = Metrics::new(limits);
    for round in 1..=3 {
        // Calls take no time here, so the sites with the most bytes come first.
        for stack in 1..=5 {
            host.copy_at(7, stack * 100, stack);
        }
        let families = host.served(&mut metrics);
        for (metric, expected) in [
            ("gpuprobe_copy_site_bytes_total", 900 * round),
            ("gpuprobe_copy_site_calls_total", 2 * round),
            ("gpuprobe_copy_site_waits_total", 0),
        ] {
            let of_process = [("pid", "7"), ("direction", "H2D")];
            assert_eq!(sum(&families, metric, &of_process), expected);
            assert_eq!(count(&families, metric), 2);
        }
    }
}

#[test]
fn a_counter_goes_on_where_a_pid_is_reused() {
    let mut host = Host::default();
    let mut metrics = Metrics::default();
    host.begin(7, "train");
    host.copy(7, 1000);
    assert_eq!(
        sum(&host.served(&mut metrics), "gpuprobe_copy_bytes_total", &[]),
        1000
    );
    host.end(7);
    host.begin(7, "train");
    host.copy(7, 10);
    assert_eq!(
        sum(&host.served(&mut metrics), "gpuprobe_copy_bytes_total", &[]),
        1010
    );
    host.copy(7, 10);
    assert_eq!(
        sum(&host.served(&mut metrics), "gpuprobe_copy_bytes_total", &[]),
        1020
    );
}

#[test]
fn kernels_keep_their_series_and_sums_are_exact() {
    let mut host = Host::default();
    let mut metrics = Metrics::new(MetricLimits {
        kernels: 2,
        ..MetricLimits::default()
    });
    host.begin(7, "train");
    // Kernels without a name are one series; these have numbers for names.
    let name = |host: &mut Host, handle: u64| {
        let kernel = gpuprobe_model::event::KernelName {
            pid: 7,
            key: RawLaunchKey {
                handle,
                process: number(7),
                row: row("cuLaunchKernel"),
                epoch: 0,
            },
            given: true,
            grid: [1; 3],
            block: [1; 3],
            name: Some(format!("kernel_{handle}")),
        };
        host.state
            .launches
            .apply(&Event::Kernel(kernel), |_, _| None);
    };
    let mut before = BTreeMap::new();
    let mut counts = [100, 50, 10, 5];
    for round in 0..20 {
        for (handle, runs) in (1..).zip(&mut counts) {
            name(&mut host, handle);
            // The last overtakes all others, and has no series.
            *runs += if handle == 4 { 200 * round } else { handle };
            host.launches(7, handle, *runs);
        }
        let families = host.served(&mut metrics);
        let launches = families["gpuprobe_kernel_launches_total"].clone();
        assert_eq!(launches.len(), 3, "{launches:?}");
        assert_eq!(
            sum(&families, "gpuprobe_kernel_launches_total", &[]),
            counts.iter().sum::<u64>()
        );
        let other = [("pid", "7"), ("kernel", "other")];
        assert!(sum(&families, "gpuprobe_kernel_launches_total", &other) > 0);
        for (labels, value) in &launches {
            let last = before.get(labels).copied().unwrap_or(0);
            assert!(*value >= last, "{labels:?} went back");
        }
        before = launches;
    }
    let kernels = before.keys().filter_map(|labels| labels.last());
    let kernels: Vec<_> = kernels.map(|(_, kernel)| kernel.as_str()).collect();
    assert_eq!(kernels, ["kernel_1", "kernel_2", "other"]);
}

#[test]
fn processes_beyond_the_limit_are_summed() {
    let mut host = Host::default();
    let limits = MetricLimits {
        series: 120,
        ..MetricLimits::default()
    };
    let mut metrics = Metrics::new(limits);
    let (mut memory, mut copied) = (0, 0);
    for pid in 1..=200 {
        host.begin(pid, "train");
        host.alloc(pid, "cudaMalloc", u64::from(pid) * 10);
        host.copy(pid, u64::from(pid));
        memory += u64::from(pid) * 10;
        copied += u64::from(pid);
    }
    for round in 1..4 {
        let families = host.served(&mut metrics);
        let served: usize = families.values().map(BTreeMap::len).sum();
        assert!(served <= limits.series, "{served}");
        assert_eq!(sum(&families, "gpuprobe_series", &[]), served as u64);
        assert!(sum(&families, "gpuprobe_merged_series", &[]) > 150);
        assert_eq!(sum(&families, "gpuprobe_gpu_memory_bytes", &[]), memory);
        assert_eq!(sum(&families, "gpuprobe_copy_bytes_total", &[]), copied);
        let other = [("pid", "other"), ("comm", "other"), ("kind", "device")];
        assert!(sum(&families, "gpuprobe_gpu_memory_bytes", &other) > 0);
        // The largest has its own.
        assert_eq!(
            sum(&families, "gpuprobe_gpu_memory_bytes", &[("pid", "200")]),
            2000
        );
        for pid in 1..=200 {
            host.copy(pid, round);
            copied += round;
        }
    }
}

#[test]
fn call_sites_are_those_of_the_process_as_it_is_now() {
    let mut host = Host::default();
    let mut metrics = Metrics::default();
    host.begin(7, "train");
    host.begin(8, "idle");
    host.alloc(7, "cudaMalloc", 100);
    host.alloc(8, "cudaMalloc", 100);
    let site = |families: &Served, pid, name| {
        sum(
            families,
            "gpuprobe_memory_site_bytes",
            &[("pid", pid), ("site", name)],
        )
    };
    let families = host.served(&mut metrics);
    assert_eq!(host.described, HashSet::from([7, 8]));
    assert_eq!(site(&families, "7", "cudaMalloc"), 100);
    // A call site that was never seen is named at once.
    host.alloc(8, "cudaMallocManaged", 7);
    host.time_ns += 1_000_000_000;
    let families = host.served(&mut metrics);
    assert_eq!(site(&families, "8", "cudaMallocManaged"), 7);
    // The process that has the id now has nothing of the one before.
    host.end(8);
    host.begin(8, "other");
    let families = host.served(&mut metrics);
    assert_eq!(
        sum(&families, "gpuprobe_memory_site_bytes", &[("pid", "8")]),
        0
    );
    assert_eq!(sum(&families, "gpuprobe_verdict", &[("pid", "8")]), 0);
}

#[test]
fn few_call_sites_are_named_at_a_time_and_sums_are_exact() {
    let mut host = Host::default();
    let mut metrics = Metrics::new(MetricLimits {
        series: 100_000,
        ..MetricLimits::default()
    });
    for pid in 1..=1500 {
        host.begin(pid, "train");
        host.alloc(pid, "cudaMalloc", 100);
    }
    let mut named = Vec::new();
    for _ in 0..5 {
        host.time_ns += 1_000_000_000;
        let families = host.served(&mut metrics);
        assert_eq!(sum(&families, "gpuprobe_memory_site_bytes", &[]), 150_000);
        named.push(
            sum(
                &families,
                "gpuprobe_memory_site_bytes",
                &[("site", "cudaMalloc")],
            ) / 100,
        );
    }
    assert_eq!(named, [500, 1000, 1500, 1500, 1500]);
}

#[test]
fn names_have_no_addresses_and_limited_length() {
    for (name, cleaned) in [
        ("load.c:7 load @0x7f1234567890", "load.c:7 load @?"),
        ("0x401136", UNKNOWN),
        ("", UNKNOWN),
        ("a\nb\u{202e}", "a\\nb\\u{202e}"),
    ] {
        assert_eq!(clean_name(name), cleaned, "{name}");
    }
    let long = clean(&"線".repeat(1000));
    assert_eq!(long.chars().count(), MAX_CHARACTERS + 1);
}
