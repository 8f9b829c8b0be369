// Documents as `gpuprobe report FILE --html` writes them, of runs that never were. The same seed
// gives the same document.

/** Numbers from 0 to 1, always the same for a seed (mulberry32). */
export function random(seed) {
    let state = seed >>> 0;
    return () => {
        state = (state + 0x6d2b79f5) >>> 0;
        let t = state;
        t = Math.imul(t ^ (t >>> 15), t | 1);
        t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
        return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
}

const MIB = 1024 * 1024;
const KINDS = ['device', 'async', 'managed', 'pinned'];
const OWNERS = ['PyTorch', 'cuBLAS', 'train', null];
const CALLS = {
    device: 'cudaMalloc',
    async: 'cudaMallocAsync',
    managed: 'cudaMallocManaged',
    pinned: 'cudaHostAlloc',
};

/** Frames of a training program: Python above native code, and some of C++. */
function makeFrames(next, wanted) {
    const frames = [];
    for (let at = 0; at < wanted; at += 1) {
        const python = at % 3 === 0 ? 1 : 0;
        const line = 10 + Math.floor(next() * 400);
        frames.push(
            python
                ? [`step_${at}`, `/home/user/model/train_${at % 7}.py`, line, null, 1, 0]
                : [
                      `at::native::op_${at}<float>`,
                      at % 2 ? null : `/src/op_${at}.cpp`,
                      at % 2 ? null : line,
                      '/usr/lib/libtorch_cuda.so',
                      0,
                      at % 5 === 1 ? 1 : 0,
                  ],
        );
    }
    return frames;
}

function makeStack(next, frames) {
    const depth = 3 + Math.floor(next() * 14);
    const stack = [];
    // Outer frames are shared by many stacks.
    for (let level = depth; level > 0; level -= 1) {
        const choices = Math.min(frames, level <= 3 ? 2 * level : 2 + level * 8);
        stack.push(Math.floor(next() * choices));
    }
    return stack;
}

/** Changes of a stack: some bins, in order, nothing freed that is not live. */
function makeChanges(next, bins, wanted, unit) {
    const chosen = new Set();
    while (chosen.size < Math.min(wanted, bins)) chosen.add(Math.floor(next() * bins));
    const changes = [];
    let count = 0;
    let ended = false;
    for (const bin of [...chosen].sort((a, b) => a - b)) {
        if (ended) break;
        const allocations = 1 + Math.floor(next() * 6);
        const frees = Math.floor(next() * (count + allocations + 1) * 0.9);
        const left = count + allocations - frees;
        const held = bin === bins - 1 && next() < 0.5 ? left : 0;
        ended = held > 0;
        const peak = Math.floor(next() * (allocations + 1));
        changes.push(
            bin,
            allocations * unit,
            allocations,
            frees * unit,
            frees,
            held * unit,
            held,
            peak * unit,
            peak,
        );
        count = left - held;
    }
    return changes;
}

/** Time and bytes of the highest total of each bin. */
function makeBins(paths, edges) {
    const bins = edges.length - 1;
    const highest = new Float64Array(bins);
    for (const { changes } of paths) {
        let at = 0;
        let live = 0;
        for (let bin = 0; bin < bins; bin += 1) {
            highest[bin] += live;
            if (changes[at] !== bin) continue;
            highest[bin] += changes[at + 7];
            live += changes[at + 1] - changes[at + 3] - changes[at + 5];
            at += 9;
        }
    }
    return edges
        .slice(0, -1)
        .map((from, bin) => [from + Math.floor((edges[bin + 1] - from) * 0.4), highest[bin]]);
}

function makeMemory(next, options, edges, frames) {
    const bins = edges.length - 1;
    const siteCount = Math.max(1, Math.floor(options.paths / 2));
    const sites = Array.from({ length: siteCount }, (_, at) => ({
        id: at * 3 + 1,
        label: at % 2 ? `train_${at % 7}.py:${20 + at} step_${at}` : `libtorch_cuda: op_${at}`,
    }));
    const paths = Array.from({ length: options.paths }, (_, at) => {
        const kind = KINDS[at % 11 === 7 ? 3 : at % 3];
        const unit = 256 * (1 + Math.floor(next() ** 4 * 40_000));
        return {
            pid: options.pids[at % options.pids.length],
            site: sites[at % siteCount].id,
            kind,
            host: kind === 'pinned',
            function: CALLS[kind],
            owner: OWNERS[at % OWNERS.length],
            stack: makeStack(next, frames.length),
            changes: makeChanges(next, bins, Math.ceil(options.changes / options.paths), unit),
        };
    });
    const peaks = makeBins(
        paths.filter((one) => !one.host),
        edges,
    );
    return {
        incidents: [
            {
                time_ns: edges[bins - 2] ?? 0,
                text: 'cudaMalloc of 2.00 GiB refused: out of memory',
            },
        ],
        overlay: [
            {
                label: 'nvidia-smi GPU 0',
                points: peaks.map(([ns, bytes]) => [ns / 1e9, bytes + 420 * MIB]),
            },
        ],
        bins: peaks,
        sites: Object.fromEntries(
            options.pids.flatMap((pid) => sites.map(({ id, label }) => [`${pid}:${id}`, label])),
        ),
        paths,
    };
}

const triples = (next, bins, of) => {
    const flat = [];
    for (let bin = 0; bin < bins; bin += 1) flat.push(...of(bin, next));
    return flat;
};

function makeKernels(next, pids, bins) {
    return Array.from({ length: 12 }, (_, at) => {
        const pid = pids[at % pids.length];
        const name = `void at::native::vectorized_elementwise_kernel<4, functor_${at}<float>>(int)`;
        if (at === 11) {
            const [name, launches] = ['untimed_kernel', 77];
            return { pid, name, short: name, launches, total_ns: null, changes: null };
        }
        const changes = triples(next, bins, (bin) => [
            bin,
            1 + Math.floor(next() * 20),
            Math.floor(next() * 4e5),
        ]);
        const sum = (column) =>
            changes.reduce((all, value, index) => (index % 3 === column ? all + value : all), 0);
        return {
            pid,
            name,
            short: `functor_${at}<float>`,
            launches: sum(1),
            total_ns: sum(2),
            changes,
        };
    });
}

function makeCopies(next, pids, bins) {
    const kinds = [
        ['host to device', 'sync'],
        ['host to device', 'async'],
        ['device to host', 'sync'],
        ['device to device', 'async'],
    ];
    return kinds.map(([direction, mode], at) => {
        const changes = triples(next, bins, (bin) => [
            bin,
            1 + Math.floor(next() * 4),
            Math.floor(next() * 64 * MIB),
            1000 + Math.floor(next() * 3e6),
        ]);
        return { pid: pids[at % pids.length], direction, mode, changes };
    });
}

const makeCopySites = (pids) =>
    ['pageable', null].map((host_memory, at) => ({
        pid: pids[0],
        label: `train.py:${at + 4} step`,
        api: 'cudaMemcpyAsync',
        direction: 'H2D',
        host_memory,
        calls: 100 + at,
        bytes: 3 * MIB + at,
        waits: at,
        seconds: 0.5 + at,
        advice: host_memory && 'page-locked memory would let them overlap',
    }));

function makeGpus(next, edges) {
    const bins = edges.length - 1;
    const width = edges[1] - edges[0];
    const part = (share) => Array.from({ length: bins }, () => Math.floor(next() * share * width));
    const rows = { kernels: part(0.6), copies: part(0.25), sets: part(0.02), graphs: part(0.1) };
    const busy = rows.kernels.map((ns, bin) => Math.min(width, ns + rows.copies[bin] + rows.sets[bin]));
    return [
        {
            device: 0,
            name: 'NVIDIA H100',
            gaps: 295,
            longest_gap_ns: 358688,
            busy_ns: busy.reduce((a, b) => a + b),
            bins: { ...rows, busy },
        },
    ];
}

function makeSegments(next, sites) {
    const ages = () => Math.floor(next() * 3e10);
    return Array.from({ length: 28 }, (_, at) => {
        const bytes = at < 12 ? 2 * MIB : at < 22 ? 20 * MIB : 64 * MIB;
        const blocks = [];
        for (let offset = 0; offset < bytes;) {
            const length = Math.min(bytes - offset, 512 * (1 + Math.floor(next() ** 2 * (bytes / 2048))));
            const free = next() < 0.35;
            blocks.push(offset, length, free ? -2 : Math.floor(next() * (sites + 1)) - 1, free ? -1 : ages());
            offset += length;
        }
        return { address: `0x${(0x7f4000000000 + at * 0x4000000).toString(16)}`, bytes, blocks };
    });
}

function makeTensors(next, pid, edges, frames) {
    const bins = edges.length - 1;
    const shared = { pid, kind: 'tensors', host: false, function: '', owner: null };
    const paths = Array.from({ length: 14 }, (_, site) => ({
        ...shared,
        site,
        stack: makeStack(next, frames.length),
        changes: makeChanges(next, bins, bins / 2, 4096 * (1 + Math.floor(next() * 200))),
    }));
    const before = [0, 30 * MIB, 0, 0, 0, 0, 0, 30 * MIB, 0, 20, 0, 0, 12 * MIB, 0, 0, 0, 0, 0];
    const label = 'allocated before gpuprobe attached';
    paths.push({ ...shared, site: null, function: label, stack: [], changes: before });
    const sites = Object.fromEntries(
        paths.slice(0, 14).map(({ site }) => [`${pid}:${site}`, `train.py:${58 + site} step`]),
    );
    const highest = makeBins(paths, edges);
    const sums = highest.map(([, bytes]) => bytes);
    let most = 0;
    const reserved = sums.map((sum) => (most = Math.max(most, Math.ceil(sum / (20 * MIB)) * 20 * MIB)));
    const report = {
        device: 0,
        allocated_bytes: sums[bins - 1],
        reserved_bytes: most,
        peak_allocated_bytes: Math.max(...sums),
        peak_reserved_bytes: most,
        requested_bytes: null,
        tensors: 310,
        before_bytes: 18 * MIB,
        segments: 28,
        largest_free_bytes: 18 * MIB,
        largest_fit_bytes: 18 * MIB,
        empty_cache_bytes: 64 * MIB,
        pinned_by_small_bytes: 20 * MIB,
    };
    return {
        pid,
        device: 0,
        report,
        bins: highest,
        paths,
        sites,
        reserved,
        segments: makeSegments(next, 14),
    };
}

function makeExplain(pid, memory) {
    const [key, where] = Object.entries(memory.sites)[1] ?? Object.entries(memory.sites)[0];
    const site = Number(key.split(':')[1]);
    const one = (grade, verdict, confidence, more) => ({
        grade,
        verdict,
        confidence,
        pid,
        site,
        tensors_of_device: null,
        where,
        owner: 'PyTorch',
        bytes: 780 * MIB,
        allocations: 1249,
        bytes_per_second: null,
        since_ns: 0,
        evidence: [],
        advice: '',
        ...more,
    });
    return {
        verdicts: [
            one('LEAK', 'growing', 'certain', {
                evidence: [
                    'growing 10.41 MiB/s for 5m14s, +780.75 MiB, no sign of levelling off',
                    '1249 tensors live, none freed in 5m14s',
                ],
                advice: 'find what keeps these alive: a list, an unbounded cache, an undetached autograd graph',
                tensors_of_device: 0,
            }),
            one('warn', 'freed late', 'likely', {
                evidence: ['4 allocations live for 31 s, of usually 0.2 s'],
                advice: 'look for what keeps single ones',
            }),
            one('ok', 'cache', 'likely', {
                evidence: ['12.04 MiB in 40 allocations: freed and allocated again'],
            }),
            one('note', 'context', 'certain', {
                site: null,
                where: null,
                evidence: ['a context takes about 520 MiB'],
            }),
            one('too early', 'too early', 'too early: 9 more seconds', {
                site: null,
                where: null,
                evidence: ['45 contexts made; a verdict needs about 9s more'],
            }),
        ],
        owners: [],
    };
}

/** A run; `options` as in DEFAULTS. */
export function makeRun(given = {}) {
    const options = {
        seed: 1,
        bins: 64,
        paths: 60,
        changes: 900,
        pids: [4711, 4712],
        seconds: 31,
        ...given,
    };
    const next = random(options.seed);
    const width = Math.floor((options.seconds * 1e9) / options.bins);
    const edges = Array.from({ length: options.bins + 1 }, (_, at) => at * width);
    const frames = makeFrames(next, options.frames ?? 60);
    const memory = makeMemory(next, options, edges, frames);
    const kernels = makeKernels(next, options.pids, options.bins);
    return {
        file: 'run.sqlite',
        title: 'python train.py, NVIDIA H100, 2026-11-24 11:00',
        start: '2026-11-24T11:00:00.000000000+00:00',
        traced: `${options.pids.length} processes for ${options.seconds} s: memory, launches, copies`,
        lost: { complete: true, sentence: 'Nothing was lost.' },
        edges_ns: edges,
        frames,
        processes: options.pids.map((pid, at) => ({
            pid,
            comm: at ? 'worker' : 'python',
            run_ns: options.seconds * 1e9,
            peak_bytes: (1024 ** 3) >> at,
            never_freed_bytes: 1024 * at,
            never_freed_allocations: at,
            launches: kernels.filter((one) => one.pid === pid).reduce((sum, one) => sum + one.launches, 0),
            graph_launches: 0,
            kernel_ns: 1e9,
            copies: 5,
            copied_bytes: 4096,
        })),
        explain: makeExplain(options.pids[0], memory),
        memory,
        gpus: makeGpus(next, edges),
        kernels,
        copies: makeCopies(next, options.pids, options.bins),
        copy_sites: makeCopySites(options.pids),
        tensors: [makeTensors(next, options.pids[0], edges, frames)],
    };
}

export const makeDocument = (...runs) => ({ version: 2, gpuprobe: '0.2.0', runs, diff: null });

/** Two runs and the growth between them. */
export function makePair() {
    const before = { ...makeRun({ seed: 1 }), file: 'monday.sqlite', title: null };
    const after = {
        ...makeRun({ seed: 2, seconds: 40, bins: 80 }),
        file: 'tuesday.sqlite',
        title: null,
    };
    const grown = Array.from({ length: 30 }, (_, at) => ({
        stack: ['cudaMalloc', `[step_${at}] (train.py)`, '[main] (python3)'],
        bytes: [at * MIB, (at % 7) * 3 * MIB],
        allocations: [at, (at % 7) * 3],
        label: `train.py:${at} step_${at}`,
    }));
    const diff = {
        analysis: 'diff',
        watermark: [1024 ** 3, 1.5 * 1024 ** 3],
        leaked: [24 * MIB, 28 * MIB],
        at_peak: grown.slice(0, 12),
        never_freed: grown,
    };
    return { ...makeDocument(before, after), diff };
}

/** A document of the size of a run of 10 million events. */
export const makeLarge = () =>
    makeDocument(
        makeRun({
            seed: 9,
            bins: 256,
            paths: 20_000,
            changes: 160_000,
            frames: 3000,
        }),
    );
