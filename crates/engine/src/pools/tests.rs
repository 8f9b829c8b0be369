use super::*;

const GPU: AllocationPlace = AllocationPlace::Device(0);

#[test]
fn pools_are_bounded() {
    let mut pools = PoolAccounts::default();
    let mut slots = Vec::new();
    for handle in 1..2000 {
        pools.create(handle, GPU.into());
        slots.push(pools.slot(handle, GPU));
        pools.add(slots[slots.len() - 1], 1);
    }
    let used = |pools: &PoolAccounts| pools.iter().map(|p| p.used.allocations).sum::<u64>();
    assert_eq!(used(&pools), MAX_POOLS as u64);
    assert_eq!(pools.place(slots[1998]), None);
    assert_eq!(pools.place(slots[0]), Some(GPU));
    // The default pool of another device is not told apart either.
    let other = pools.slot(0, AllocationPlace::Device(1));
    pools.subtract(other, 1);
    assert_eq!(used(&pools), MAX_POOLS as u64);
    // A pool that is gone makes room.
    pools.subtract(slots[3], 1);
    pools.destroy(4);
    pools.create(5000, GPU.into());
    assert_eq!(pools.slot(5000, GPU), slots[3]);
}

#[test]
fn managed_pools_are_separate() {
    let mut pools = PoolAccounts::default();
    let managed = location(1, Some(0), 2);
    pools.learn(0x30, managed);
    let plain = pools.slot(0, GPU);
    assert_ne!(pools.slot(0x30, GPU), plain);
    pools.create(0x40, managed);
    pools.set_current(0x40, managed);
    assert_eq!(pools.slot(0, GPU), plain);
    pools.learn(0x50, location(1, Some(0), 1));
    assert_eq!(pools.slot(0x50, GPU), plain);
}

#[test]
fn a_pool_of_a_part_of_a_device_is_not_that_of_the_device() {
    let mut pools = PoolAccounts::default();
    let part = location(1 << 40 | 6, None, 1);
    pools.create(0x30, part);
    pools.set_current(0x30, part);
    assert_ne!(pools.slot(0, GPU), pools.slot(0x30, GPU));
    assert_eq!(pools.place_of(0x30), GPU);
    let unknown = [location(7, None, 1), location(1, Some(0), 3)];
    assert!(part.is_known() && !unknown.iter().any(|one| one.is_known()));
    // Of an unknown type of memory, the location is known.
    assert_eq!(unknown[1].place, GPU);
}

#[test]
fn locations_are_of_a_device_or_of_the_host() {
    let device = Some(3);
    for (location_type, expected) in [
        (0, AllocationPlace::Device(3)),
        (1, AllocationPlace::Device(3)),
        (2, AllocationPlace::Host),
        (3, AllocationPlace::Host),
        (4, AllocationPlace::Host),
        // A part of device 2, and of one that cannot be; no device has the numbers of its parts.
        (0x0102 << 32 | 6, AllocationPlace::Device(2)),
        (0xfe << 32 | 6, AllocationPlace::Unknown),
        (5, AllocationPlace::Elsewhere),
        (7, AllocationPlace::Elsewhere),
    ] {
        assert_eq!(place(location_type, device), expected);
    }
    assert_eq!(place(1, None), AllocationPlace::Unknown);
    let mut pools = PoolAccounts::default();
    for (handle, place) in [(0x10, AllocationPlace::Host), (0x20, GPU)] {
        pools.create(handle, place.into());
        assert_eq!(pools.place_of(handle), place);
    }
    assert_eq!(pools.place_of(0x30), AllocationPlace::Unknown);
    let devices: Vec<_> = pools.iter().map(PoolAccount::device).collect();
    assert_eq!(devices, [None, Some(0)]);
    pools.destroy(0x20);
    assert_eq!(pools.place_of(0x20), AllocationPlace::Unknown);
    // Used again on another device, while memory of the former pool is live.
    pools.create(0x20, AllocationPlace::Device(1).into());
    assert_eq!(pools.place_of(0x20), AllocationPlace::Device(1));
}

#[test]
fn a_device_returns_to_its_own_default_pool() {
    let mut pools = PoolAccounts::default();
    let other = AllocationPlace::Device(1);
    let defaults = [GPU, other].map(|place| pools.slot(0, place));
    pools.create(0x20, other.into());
    pools.create(0x30, other.into());
    pools.set_current(0x20, other.into());
    assert_eq!(pools.slot(0, GPU), defaults[0]);
    // It is not the current one.
    pools.destroy(0x30);
    assert_eq!(pools.slot(0, other), pools.slot(0x20, other));
    pools.destroy(0x20);
    assert_eq!([GPU, other].map(|place| pools.slot(0, place)), defaults);
    // One that was not seen to be created.
    pools.set_current(0x40, GPU.into());
    assert_eq!(pools.slot(0, GPU), pools.slot(0x40, GPU));
    assert_ne!(pools.slot(0x40, GPU), defaults[0]);
}

#[test]
fn a_query_names_the_default_pool_of_its_device() {
    let mut pools = PoolAccounts::default();
    let other = AllocationPlace::Device(1);
    let [first, second] = [GPU, other].map(|place| pools.slot(0, place));
    pools.learn(0x20, other.into());
    pools.learn(0x20, GPU.into());
    assert_eq!(pools.slot(0x20, GPU), second);
    pools.learn(0x10, GPU.into());
    assert_eq!(pools.slot(0x10, GPU), first);
    // Another one of the device, which has a current pool.
    pools.learn(0x30, GPU.into());
    assert_eq!(pools.slot(0, GPU), first);
    assert_eq!((pools.kept(), pools.iter().count()), (3, 3));
}

#[test]
fn the_reserved_size_is_outdated_once_more_is_used() {
    let mut pools = PoolAccounts::default();
    pools.create(0x20, GPU.into());
    let slot = pools.slot(0x20, GPU);
    pools.attribute(0x20, 7, 100, GPU);
    assert_eq!(pools.get(slot).unwrap().reserved_bytes, None);
    pools.attribute(0x20, 5, 100, GPU);
    pools.add(slot, 100);
    pools.subtract(slot, 60);
    assert_eq!(pools.get(slot).unwrap().used.bytes, 40);
    pools.add(slot, 60);
    assert_eq!(pools.get(slot).unwrap().reserved_bytes, Some(100));
    pools.add(slot, 1);
    assert_eq!(pools.get(slot).unwrap().reserved_bytes, None);
    // Beyond the limit there is none.
    (1..=300).for_each(|handle| pools.create(handle << 8, GPU.into()));
    let none = pools.slot(300 << 8, GPU);
    pools.attribute(300 << 8, 5, 100, GPU);
    pools.add(none, 1);
    assert!(pools.get(none).is_none() && pools.place(none).is_none());
    assert_eq!((pools.kept(), pools.iter().count()), (MAX_POOLS, MAX_POOLS));
}
