/** The document inside the page. Times are ns from the first memory event of the run. */
export interface ReportDocument {
    version: number;
    gpuprobe: string;
    runs: Run[];
    diff: Diff | null;
}

export interface Run {
    file: string;
    title: string | null;
    start: string | null;
    traced: string[];
    /** `complete` is null if that is unknown. */
    lost: { complete: boolean | null; sentence: string };
    /** N+1 times. Bin k is [edges[k], edges[k+1]), the last one closed. */
    edges_ns: number[];
    frames: Frame[];
    processes: FileProcess[];
    explain: Explain | null;
    memory: Memory | null;
    gpus: Gpu[];
    kernels: Kernel[];
    copies: Copies[];
    pytorch: Pytorch[];
}

/** Function, file, line, module, 1 if Python, 1 if inlined. */
export type Frame = [string, string | null, number | null, string | null, number, number];

export interface FileProcess {
    pid: number;
    process?: string | null;
    comm?: string | null;
    run_ns?: number | null;
    peak_bytes?: number | null;
    never_freed_bytes?: number | null;
    never_freed_allocations?: number | null;
    launches?: number | null;
    graph_launches?: number | null;
    kernel_ns?: number | null;
    copies?: number | null;
    copied_bytes?: number | null;
}

export interface Explain {
    verdicts: Verdict[];
    owners?: { owner: string; bytes: number; allocations: number }[];
}

export interface Verdict {
    /** As `explain` prints it in front; absent in older documents. */
    grade?: string;
    verdict: string;
    confidence: string;
    pid: number;
    site: number | null;
    tensors_of_device: number | null;
    where: string | null;
    owner: string | null;
    bytes: number;
    allocations: number;
    bytes_per_second: number | null;
    evidence: string[];
    advice: string;
}

/** Steps: a value holds until the next time. */
export interface Timeline {
    labels: string[];
    times_ns: number[];
    values: number[][];
    reserved?: number[] | null;
}

export interface Memory {
    peak: { time_ns: number; bytes: number } | null;
    incidents: { time_ns: number; pid: number; text: string }[];
    timelines: Record<string, Timeline | null>;
    overlay: { label: string; points: [number, number][] }[];
    bins: ([number, number] | null)[];
    sites: { id: number; label: string }[];
    stacks: Stack[];
    allocations: { all: number; rows: AllocationRow[] };
}

export interface Stack {
    pid: number;
    site: number;
    kind: string;
    host: boolean;
    function: string;
    owner: string | null;
    /** Frame numbers, innermost first. */
    stack: number[];
    /** Nine integers per change, see sums.ts. */
    changes: number[];
}

/** Address, bytes, time, time gone, how it ended (0 live, 1 freed, 2 held at exit), stack, thread. */
export type AllocationRow = [string, number, number, number | null, number, number, number];

export interface Gpu {
    device: number;
    name?: string | null;
    gaps?: number | null;
    longest_gap_ns?: number | null;
    observed_ns?: number | null;
    bins?: Partial<Record<GpuWork | 'busy', number[]>> | null;
}
export type GpuWork = 'kernels' | 'copies' | 'sets' | 'graphs';

export interface Kernel {
    pid: number;
    name: string;
    /** The name without what says little, as in text. */
    short?: string;
    launches: number;
    total_ns: number | null;
    /** Bin, runs, total ns; null if only counts of the whole run are known. */
    changes: number[] | null;
    /** Bin, bucket, runs; bucket b is [2^b, 2^(b+1)) ns. */
    histogram: number[] | null;
}

export interface Copies {
    pid: number;
    direction: string;
    mode: string;
    copies: number;
    bytes: number;
    ns: number | null;
    /** Bin, copies, bytes, ns. */
    changes: number[] | null;
    /** Bin, bucket of bytes, copies. */
    histogram: number[] | null;
}

export interface Pytorch {
    pid: number;
    device: number;
    report: Record<string, unknown>;
    timeline: Timeline | null;
    sites: TensorSite[];
    before_bytes?: number[] | null;
    map: { segments: Segment[] } | null;
}

export interface TensorSite {
    id: number;
    label: string;
    stack: number[];
    /** Bin, allocated bytes, allocations, freed bytes, frees. */
    changes: number[];
}

export interface Segment {
    address: string;
    bytes: number;
    /** Offset, bytes, index into sites (-1 unknown or before, -2 free), age ns or -1. */
    blocks: number[];
}

export interface Diff {
    watermark?: [number, number];
    leaked?: [number, number];
    at_peak?: Grown[];
    never_freed?: Grown[];
    tensors?: {
        watermark?: [number, number];
        leaked?: [number, number];
        at_peak?: Grown[];
        never_freed?: Grown[];
    } | null;
}

export interface Grown {
    stack: string[];
    bytes: [number, number];
    allocations: [number, number];
    label: string;
}
