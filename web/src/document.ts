/** The document that gpuprobe writes into the page. Times are ns from the first memory event of the run. */
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
    traced: string;
    /** `complete` is null if that is unknown. */
    lost: { complete: boolean | null; sentence: string };
    /** N+1 times. Bin k is [edges[k], edges[k+1]), the last one closed. */
    edges_ns: number[];
    frames: Frame[];
    processes: FileProcess[];
    explain: { verdicts: Verdict[] } | null;
    memory: Memory | null;
    gpus: Gpu[];
    kernels: Kernel[];
    copies: Copies[];
    copy_sites: CopySite[];
    tensors: Tensors[];
}

/** Function, file, line, module, 1 if Python, 1 if inlined. */
export type Frame = [string, string | null, number | null, string | null, number, number];

export interface FileProcess {
    pid: number;
    comm: string | null;
    run_ns: number;
    /** As those below, null if that was not recorded. */
    peak_bytes: number | null;
    never_freed_bytes: number | null;
    launches: number | null;
    copies: number | null;
    copied_bytes: number | null;
}

export interface Verdict {
    grade: 'LEAK' | 'warn' | 'too early' | 'ok' | 'note';
    verdict: string;
    confidence: string;
    pid: number;
    site: number | null;
    tensors_of_device: number | null;
    where: string | null;
    allocations: number;
    evidence: string[];
    advice: string;
}

/** Memory by call path and bin. */
export interface Held {
    /** Time and bytes of the highest total within each bin. */
    bins: [number, number][];
    paths: Path[];
    /** Labels of call sites by process and number in reports: `PID:NUMBER`. */
    sites: Record<string, string>;
}

export interface Path {
    pid: number;
    site: number | null;
    kind: string;
    host: boolean;
    /** The function that was called; of tensors, none. */
    function: string;
    owner: string | null;
    /** Frame numbers, innermost first. */
    stack: number[];
    /** Nine integers a bin in which something changed, see bins.ts. */
    changes: number[];
}

export interface Memory extends Held {
    incidents: { time_ns: number; text: string }[];
    overlay: { label: string; points: [number, number][] }[];
}

/** Tensors of a framework's allocator. */
export interface Tensors extends Held {
    pid: number;
    device: number;
    /** The allocator at the end, as in reports. */
    report: Record<string, unknown> | null;
    /** The most that was reserved within each bin. */
    reserved: number[];
    segments: Segment[];
}

export interface Segment {
    address: string;
    bytes: number;
    /** Offset, bytes, index into paths (-1 unknown, -2 free), age in ns or -1. */
    blocks: number[];
}

export type GpuWork = 'kernels' | 'copies' | 'sets' | 'graphs';
export interface Gpu {
    device: number;
    name: string | null;
    gaps: number;
    longest_gap_ns: number;
    /** Nanoseconds of each bin. */
    bins: Record<GpuWork | 'busy', number[]>;
}

export interface Kernel {
    pid: number;
    name: string;
    short: string;
    launches: number;
    total_ns: number | null;
    /** Bin, runs, total ns; null if only the launches of the whole run are known. */
    changes: number[] | null;
}

export interface Copies {
    pid: number;
    direction: string;
    mode: string;
    /** Bin, copies, bytes, ns. */
    changes: number[];
}

export type CopySite = Record<'pid' | 'calls' | 'bytes' | 'waits' | 'seconds', number> &
    Record<'label' | 'api' | 'direction', string> &
    Record<'host_memory' | 'advice', string | null>;

export type Pair = [number, number];
interface Growth {
    watermark: Pair;
    leaked: Pair;
    at_peak: Grown[];
    never_freed: Grown[];
}
export interface Diff extends Growth {
    tensors?: Growth | null;
}

export interface Grown {
    stack: string[];
    bytes: Pair;
    allocations: Pair;
    label: string;
}
