use super::*;
use gpuprobe_model::stack::Location;
use proptest::prelude::*;

fn stack(address: u64) -> Rc<CallStack> {
    Rc::new(CallStack {
        locations: vec![Location {
            address,
            module: None,
            offset: address,
        }],
        is_complete: true,
    })
}

#[test]
fn a_site_is_a_stack_and_a_function() {
    let mut sites = Sites::default();
    sites.learn(1, stack(0x10));
    sites.learn(2, stack(0x20));
    sites.learn(3, stack(0x10));
    let first = sites.site(1, 7);
    assert_eq!(sites.site(3, 7), first);
    assert_ne!(sites.site(2, 7), first);
    assert_ne!(sites.site(1, 8), first);
    // Not taken, and never heard of.
    let without = sites.site(0, 7);
    assert_eq!(sites.site(99, 7), without);
    assert_ne!(sites.site(0, 8), without);
    assert_eq!(sites.iter().len(), 5);
    // The number is used for another stack.
    sites.learn(1, stack(0x20));
    assert_eq!(sites.site(1, 7), sites.site(2, 7));
}

#[test]
fn sites_are_bounded() {
    let mut sites = Sites::default();
    for number in 1..=MAX_SITES as u64 + 10 {
        sites.learn(number, stack(number));
        sites.site(number, 1);
    }
    assert_eq!(sites.iter().len(), MAX_SITES + 1);
    let site = sites.site(MAX_SITES as u64 + 5, 1);
    assert_eq!(site, sites.site(0, 1));
}

#[test]
fn sums_are_kept_as_they_were_at_the_peak() {
    let mut sites = Sites::default();
    let made = |site, size_bytes| {
        Allocation::new(&crate::allocation::NewAllocation {
            address: 0x1000,
            size_bytes,
            end_ns: 10,
            tid: 0,
            row: 1,
            site,
            kind: gpuprobe_cuda::MemoryKind::Device,
            space: gpuprobe_cuda::AddressSpace::Device,
            place: crate::allocation::AllocationPlace::Unknown,
            slot: 0,
        })
    };
    let number = sites.site(0, 1);
    sites.after_peak(3, 10);
    sites.add(&made(number, 100));
    sites.after_peak(4, 20);
    sites.add(&made(number, 20));
    sites.subtract(&made(number, 100));
    sites.add(&made(number, 7));
    let site = sites.get(made(number, 0).site).unwrap();
    let bytes = |sums: MemorySums| sums.gpu.bytes;
    assert_eq!(
        [site.live, site.allocated, site.freed].map(bytes),
        [27, 127, 100]
    );
    let now = site.live.all();
    assert_eq!(
        (site.peak_bytes, (now.allocations, now.bytes)),
        (120, (2, 27))
    );
    assert_eq!(bytes(sites.at_peak(site, 4)), 100);
    let shape = sites.shape(&[number, 99], 30);
    assert_eq!(
        (shape.left, shape.left_bytes, shape.now_ns),
        (vec![2], vec![27], 30)
    );
    assert_eq!(sites.shape(&[number], 5).now_ns, 20);
    // Of a process that ended before the last peak, nothing was live then.
    sites.end(4);
    assert_eq!(bytes(sites.at_peak(sites.get(number).unwrap(), 4)), 100);
    assert_eq!(bytes(sites.at_peak(sites.get(number).unwrap(), 5)), 0);
}

#[test]
fn without_room_further_stacks_are_not_told_apart() {
    let mut sites = Sites::default();
    sites.learn(1, stack(0x10));
    sites.learn(3, stack(0x30));
    let known = sites.site(1, 7);
    sites.is_full = true;
    sites.learn(2, stack(0x20));
    sites.learn(3, stack(0x40));
    assert_eq!((sites.take_left_out(), sites.take_left_out()), (2, 0));
    assert_eq!((sites.stack(2), sites.stack(3)), (None, None));
    assert_eq!(sites.site(1, 7), known);
    // A function that was not called from there yet.
    assert_eq!(sites.site(1, 8), sites.site(0, 8));
}

#[test]
fn frees_of_what_was_there_before_are_in_the_series() {
    let mut sites = Sites::default();
    sites.after_peak(0, 10);
    sites.note_unknown_free();
    sites.note_unknown_free();
    assert_eq!(sites.shape(&[], 20).unknown_frees, [2]);
}

/// Something that happens at one of two sites, or at none.
#[derive(Clone, Copy, Debug)]
enum Step {
    Allocate(u32, u64),
    Free(u32),
    UnknownFree,
}

fn step() -> impl Strategy<Value = (u64, Step)> {
    const MS: u64 = 1_000_000;
    let pause = prop_oneof![0..MS, 0..400 * MS, 0..8_000 * MS];
    let step = prop_oneof![
        4 => (0_u32..2, 1_u64..1 << 40).prop_map(|(site, bytes)| Step::Allocate(site, bytes)),
        2 => (0_u32..2).prop_map(Step::Free),
        1 => Just(Step::UnknownFree),
    ];
    (pause, step)
}

/// A process that frees the oldest of each site first, and, of each site, the number of its steps before its last
/// frees without an allocation or a long pause between them.
#[derive(Default)]
struct Program {
    sites: Sites,
    live: [std::collections::VecDeque<Allocation>; 2],
    steps: usize,
    frees: [Option<(usize, u64)>; 2],
    begins: [Option<(usize, u64)>; 2],
}

impl Program {
    fn play(steps: &[(u64, Step)]) -> Self {
        let mut program = Self::default();
        assert_eq!([7, 8].map(|row| program.sites.site(0, row)), [0, 1]);
        let mut now_ns = 10;
        for &(pause_ns, step) in steps {
            now_ns += pause_ns;
            program.step(step, now_ns);
        }
        program
    }

    fn step(&mut self, step: Step, now_ns: u64) {
        self.sites.after_peak(0, now_ns);
        match step {
            Step::Allocate(site, size_bytes) => {
                let new = Allocation::new(&crate::allocation::NewAllocation {
                    address: 0x1000,
                    size_bytes,
                    end_ns: now_ns,
                    tid: 0,
                    row: 1,
                    site,
                    kind: gpuprobe_cuda::MemoryKind::Device,
                    space: gpuprobe_cuda::AddressSpace::Device,
                    place: crate::allocation::AllocationPlace::Unknown,
                    slot: 0,
                });
                self.sites.set_births(self.sites.births() + 1);
                self.sites.add(&new);
                self.live[site as usize].push_back(new);
                self.begins = [None; 2];
            }
            Step::Free(site) => {
                let place = site as usize;
                if let Some(old) = self.live[place].pop_front() {
                    self.sites.subtract(&old);
                    let last = self.frees[place].replace((self.steps, now_ns));
                    let is_late = last.is_none_or(|(_, last_ns)| now_ns - last_ns > 5_000_000_000);
                    let begin = &mut self.begins[place];
                    if begin.is_none() || is_late {
                        *begin = Some((self.steps, now_ns));
                    }
                }
            }
            Step::UnknownFree => self.sites.note_unknown_free(),
        }
        self.steps += 1;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_site_is_as_before_its_teardown(
        steps in proptest::collection::vec(step(), 1..200),
        ends in proptest::collection::vec((0_u64..2_000_000_000, 0_u32..2), 0..150),
    ) {
        let ends = ends.iter().map(|&(pause_ns, site)| (pause_ns, Step::Free(site)));
        let steps: Vec<_> = steps.into_iter().chain(ends).collect();
        let program = Program::play(&steps);
        let (sites, births) = (&program.sites, program.sites.births());
        for (number, begin) in (0..).zip(program.begins) {
            let found = sites.shape_before_teardown(&[number], births);
            let expected = begin.map(|(step, now_ns)| {
                let ended = Program::play(&steps[..step]).sites;
                let mut shape = SeriesShape::new(sites.windows, &ended.unknown_frees, now_ns);
                *shape.unknown_frees.last_mut().unwrap() = 0;
                let site = ended.get(number).unwrap();
                shape.add(sites.windows, &site.series, site.live.all());
                shape
            });
            prop_assert_eq!(format!("{found:?}"), format!("{expected:?}"));
            prop_assert!(sites.shape_before_teardown(&[number], births + 1).is_none());
        }
    }
}
