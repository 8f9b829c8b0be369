use super::*;

pub(super) fn key(handle: u64, epoch: u16, symbol: &str) -> RawLaunchKey {
    let row = gpuprobe_cuda::FUNCTIONS
        .iter()
        .position(|f| f.symbol == symbol)
        .unwrap();
    RawLaunchKey {
        handle,
        process: 7 << 10,
        row: u16::try_from(row).unwrap(),
        epoch,
    }
}

pub(super) fn kernel(key: RawLaunchKey, given: bool, name: &str) -> Event {
    Event::Kernel(KernelName {
        pid: 7,
        key,
        given,
        name: Some(name.into()).filter(|_| !name.is_empty()),
        grid: [1, 1, 1],
        block: [32, 1, 1],
    })
}

fn name(launches: &Launches, handle: u64, epoch: u16) -> Option<&str> {
    let launcher = launches.launchers.get(&(7 << 10)).unwrap();
    launcher.name(handle, epoch).map(|name| &**name)
}

#[test]
fn an_unreadable_name_contradicts_a_given_one() {
    let mut launches = Launches::default();
    let no_host_name = |_, _| None;
    launches.apply(
        &kernel(key(1, 0, "cuModuleGetFunction"), true, "_Z1av"),
        no_host_name,
    );
    launches.apply(
        &kernel(key(1, 0, "cuModuleGetFunction"), false, "\u{1}"),
        no_host_name,
    );
    assert!(launches.launchers[&(7 << 10)].distrusts_found);
    assert_eq!(name(&launches, 1, 0), Some("_Z1av"));
}

#[test]
fn a_reused_handle_has_the_name_of_its_epoch() {
    let mut launches = Launches::default();
    launches.apply(
        &kernel(key(1, 0, "cuLaunchKernel"), false, "_Z3oldv"),
        |_, _| None,
    );
    launches.apply(
        &kernel(key(1, 1, "cuLaunchKernel"), false, "_Z3newv"),
        |_, _| None,
    );
    assert_eq!(name(&launches, 1, 0), Some("_Z3oldv"));
    assert_eq!(name(&launches, 1, 1), Some("_Z3newv"));
}

#[test]
fn counts_of_past_epochs_are_removed_once_final() {
    let mut launches = Launches::default();
    let (old, new) = (key(1, 7, "cuLaunchKernel"), key(1, 8, "cuLaunchKernel"));
    launches.launcher(old.process, 7).newest_epoch = 7;
    assert!(launches.set_counts(old, 5, 0));
    assert!(launches.set_counts(new, 1, 0));
    assert!(launches.set_counts(old, 6, 0), "the count has grown");
    assert!(!launches.set_counts(old, 6, 0));
    assert!(launches.set_counts(new, 1, 0));
    assert!(!launches.counted.contains_key(&old));
    let total: u64 = launches.counted().map(|launch| launch.counted.runs).sum();
    assert_eq!(total, 7);
}

#[test]
fn kernel_names_are_bounded() {
    let mut launches = Launches::default();
    let given = MAX_NAMES as u64 + 10;
    for handle in 0..given {
        let key = key(handle, 0, "cuModuleGetFunction");
        launches.apply(&kernel(key, true, "_Z1av"), |_, _| None);
    }
    assert_eq!((launches.names(), launches.names_left_out), (MAX_NAMES, 10));
    assert!(name(&launches, 0, 0).is_some());
    assert_eq!(name(&launches, given - 1, 0), None);
}

#[test]
fn reused_handles_are_counted_separately_up_to_a_limit() {
    let mut launches = Launches::default();
    let many = u64::try_from(MAX_SETTLED).unwrap() + 100;
    let row = |epoch| key(1, epoch, "cuLaunchKernel");
    for number in 0..many {
        let epoch = u16::try_from(number % 30_000).unwrap();
        let name = format!("_Z{number}");
        launches.apply(&kernel(row(epoch), true, &name), |_, _| None);
        launches.counted.get_mut(&row(epoch)).unwrap().runs = 1;
        launches.settle(row(epoch));
    }
    assert!(launches.settled.len() <= MAX_SETTLED + 1);
    assert_eq!(launches.names_left_out, 100);
    let total: u64 = launches.counted().map(|launch| launch.counted.runs).sum();
    assert_eq!(total, many);
    assert_eq!(launches.names(), 0);
}

#[test]
fn host_functions_are_named_by_their_symbols() {
    let mut launches = Launches::default();
    let symbol = |pid, address| {
        assert_eq!((pid, address), (7, 0x400));
        Some("_Z1kv".to_owned())
    };
    launches.apply(
        &kernel(key(0x400, 0, "cudaLaunchKernel"), false, ""),
        symbol,
    );
    assert_eq!(name(&launches, 0x400, 0), Some("_Z1kv"));
}

/// A kernel of process 7 as a file has it.
fn read(key: RawLaunchKey, mangled: Option<&str>, runs: u64, captured: u64) -> LaunchTarget<'_> {
    LaunchTarget {
        key,
        pid: 7,
        comm: Some("train"),
        uid: Some(5),
        exited: true,
        mangled: mangled.map(Arc::from),
        counted: LaunchCount {
            runs,
            captured,
            runs_reported: 1,
            grid: [4, 5, 6],
            block: [7, 8, 9],
        },
    }
}

#[test]
fn launches_of_a_file_are_summed_up_by_kernel() {
    let mut launches = Launches::default();
    let row = |handle| key(handle, 0, "cuLaunchKernel");
    launches.enter(read(row(1), None, 10, 1));
    launches.enter(read(row(1), None, 5, 2));
    launches.enter(read(row(2), Some("_Z1av"), 100, 30));
    launches.enter(read(row(3), Some("_Z1av"), 200, 40));
    launches.enter(read(row(4), Some("_Z1bv"), u64::MAX, u64::MAX));
    assert_eq!(launches.counted().count(), 3);
    let mut counted: Vec<_> = launches
        .counted()
        .map(|launch| {
            let LaunchCount {
                runs,
                captured,
                grid,
                block,
                ..
            } = *launch.counted;
            assert_eq!((grid, block), ([4, 5, 6], [7, 8, 9]));
            (launch.mangled.map(|name| &**name), runs, captured)
        })
        .collect();
    counted.sort_unstable();
    let expected = [
        (None, 15, 3),
        (Some("_Z1av"), 300, 70),
        (Some("_Z1bv"), MAX_COUNT, MAX_COUNT),
    ];
    assert_eq!(counted, expected);
    let launcher = launches.launchers.get(&(7 << 10)).unwrap();
    assert_eq!(
        (launcher.pid, launcher.uid, launcher.exited),
        (7, Some(5), true)
    );
    assert_eq!(launcher.comm.as_deref(), Some("train"));
}

#[test]
fn a_report_shows_all_launches_so_far() {
    let mut launches = Launches::default();
    launches.enter(read(key(1, 0, "cuLaunchKernel"), None, 10, 1));
    launches.enter(read(key(2, 0, "cuLaunchKernel"), Some("_Z1av"), 20, 1));
    launches.mark_reported();
    for launch in launches.counted() {
        assert_eq!(launch.counted.runs_reported, launch.counted.runs);
    }
    assert!(launches.launchers.get(&(7 << 10)).unwrap().end_reported);
}

#[test]
fn a_reused_handle_leaves_its_grid_and_its_name() {
    let mut launches = Launches::default();
    let (by_driver, by_extended) = ("cuLaunchKernel", "cuLaunchKernelEx");
    for (symbol, epoch) in [(by_driver, 1), (by_extended, 1), (by_driver, 2)] {
        launches.apply(&kernel(key(1, epoch, symbol), true, "_Z1av"), |_, _| None);
    }
    let old = key(1, 1, by_driver);
    launches.counted.get_mut(&old).unwrap().runs = 3;
    let before = launches.names();
    launches.settle(old);
    assert_eq!(launches.names(), before, "another row has the handle");
    let settled = launches
        .counted()
        .find(|launch| *launch.key == old)
        .unwrap();
    assert_eq!(
        (settled.counted.grid, settled.counted.block),
        ([1, 1, 1], [32, 1, 1])
    );
    assert_eq!(
        (settled.counted.runs, settled.mangled.map(|name| &**name)),
        (3, Some("_Z1av"))
    );
    launches.settle(key(1, 1, by_extended));
    assert_eq!(launches.names() * 2, before);
    assert_eq!(name(&launches, 1, 2), Some("_Z1av"));
}

#[test]
fn names_are_recorded_and_retracted() {
    let mut launches = Launches::default();
    let mut changes = Changes {
        is_enabled: true,
        ..Changes::default()
    };
    let mut named = |handle, symbol, given, name| {
        let event = kernel(key(handle, 0, symbol), given, name);
        launches.apply(&event, |_, _| None);
        let Event::Kernel(kernel) = &event else {
            unreachable!("it is a kernel");
        };
        launches.record_names(kernel, &mut changes);
        let list = std::mem::take(&mut changes.list);
        let mut list: Vec<_> = list
            .into_iter()
            .map(|change| match change {
                Change::Named((_, handle, _), name) => (handle, name.map(|name| name.to_string())),
                _ => unreachable!("{change:?}"),
            })
            .collect();
        list.sort_unstable();
        list.dedup();
        list
    };
    let (launch, asked) = ("cuLaunchKernel", "cuModuleGetFunction");
    let a = Some("_Z1av".to_owned());
    assert_eq!(named(1, launch, false, "_Z1av"), [(1, a.clone())]);
    assert_eq!(named(2, asked, true, "_Z1av"), [(2, a.clone())]);
    assert_eq!(named(2, asked, false, "_Z1av"), [(2, a.clone())]);
    // Found by its handle, it has another name: none that was found is trusted.
    assert_eq!(named(2, asked, false, "_Z1xv"), [(1, None), (2, a)]);
    assert_eq!(named(3, launch, false, "_Z1yv"), [(3, None)]);
}

#[test]
fn a_name_that_is_not_found_again_is_dropped() {
    let mut launches = Launches::default();
    let (launch, asked) = (
        key(1, 0, "cuLaunchKernel"),
        key(2, 0, "cuModuleGetFunction"),
    );
    for (key, given) in [(launch, false), (asked, true)] {
        launches.apply(&kernel(key, given, "_Z1av"), |_, _| None);
        launches.apply(&kernel(key, given, ""), |_, _| None);
    }
    assert_eq!(
        [1, 2].map(|handle| name(&launches, handle, 0)),
        [None, Some("_Z1av")]
    );
}

#[test]
fn a_process_is_known_by_its_launches() {
    let mut launches = Launches::default();
    let kernel = key(1, 0, "cuLaunchKernel");
    assert!(launches.set_counts(kernel, u64::MAX, 5));
    assert_eq!(launches.launchers.get(&kernel.process).unwrap().pid, 7);
    let counted = launches.counted().next().unwrap().counted;
    assert_eq!((counted.runs, counted.captured), (MAX_COUNT, 5));
}
