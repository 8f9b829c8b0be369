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
    let launcher = launches.launcher_of(7 << 10).unwrap();
    launcher.name(handle, epoch).map(|name| &**name)
}

#[test]
fn found_names_are_trusted_until_contradicted() {
    let mut launches = Launches::default();
    let no_host_name = |_, _| None;
    launches.apply(
        &kernel(key(1, 0, "cuLaunchKernel"), false, "_Z1av"),
        no_host_name,
    );
    launches.apply(
        &kernel(key(2, 0, "cuLaunchKernel"), false, "_Z1bv"),
        no_host_name,
    );
    assert_eq!(name(&launches, 1, 0), Some("_Z1av"));
    launches.apply(
        &kernel(key(3, 0, "cuModuleGetFunction"), true, "_Z1cv"),
        no_host_name,
    );
    launches.apply(
        &kernel(key(3, 0, "cuModuleGetFunction"), false, "_Z1cv"),
        no_host_name,
    );
    assert_eq!(name(&launches, 2, 0), Some("_Z1bv"));
    // One name differs from the given one: none is trusted any more.
    launches.apply(
        &kernel(key(4, 0, "cuModuleGetFunction"), true, "_Z1dv"),
        no_host_name,
    );
    launches.apply(
        &kernel(key(4, 0, "cuModuleGetFunction"), false, "_Z1xv"),
        no_host_name,
    );
    assert_eq!(name(&launches, 1, 0), None);
    assert_eq!(name(&launches, 3, 0), Some("_Z1cv"));
    assert_eq!(name(&launches, 4, 0), Some("_Z1dv"));
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
    assert_eq!(launches.launchers[&(7 << 10)].trust, Trust::Never);
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
fn names_of_a_user_leave_room_for_those_of_others() {
    let mut launches = Launches::default();
    let long = "x".repeat(64_000);
    let of = |uid: u32| {
        let process = key(0, 0, "cuModuleGetFunction").process + uid;
        let task = crate::task(7, process, 0);
        Event::Process(Task { uid, ..task })
    };
    let mut left_out = [0; 3];
    for uid in 0..3 {
        launches.apply(&of(uid), |_, _| None);
        let before = launches.names_left_out;
        for handle in 0..1000 {
            let mut key = key(handle, 0, "cuModuleGetFunction");
            key.process += uid;
            launches.apply(&kernel(key, true, &long), |_, _| None);
        }
        left_out[uid as usize] = launches.names_left_out - before;
    }
    // Half is 32 MiB; with two halves taken, there is nothing for a third.
    assert!((400..500).contains(&left_out[0]), "{left_out:?}");
    assert_eq!(left_out[0], left_out[1]);
    assert!(left_out[2] >= 999, "{left_out:?}");
}

#[test]
fn kernel_names_are_bounded() {
    let mut launches = Launches::default();
    let long = "x".repeat(4000);
    let given = 40_000;
    for handle in 0..given {
        let key = key(handle, 0, "cuModuleGetFunction");
        launches.apply(&kernel(key, true, &long), |_, _| None);
    }
    assert!(launches.name_bytes.total() < MAX_NAME_BYTES + 8192);
    let kept = u64::try_from(launches.name_bytes.total()).unwrap() / 4064;
    assert_eq!(kept + launches.names_left_out, given);
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
    assert_eq!(launches.name_bytes.total(), 0);
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
