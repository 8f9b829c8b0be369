import type { Frame, Run } from './document';
import { Ledger, type MeasureName, type Sums } from './sums';

type Change = 'range' | 'cursor' | 'window' | 'measure';
export type Weight = 'bytes' | 'count';

/** Extents that two runs share so that their charts can be compared. */
export interface Scale {
    fromNs: number;
    toNs: number;
    bytes: number;
    /** Of tensors. */
    tensorBytes: number;
}

/** What is looked at of one run: the range, the cursor, the part of the time that charts show. */
export class View {
    /** Numbers of the edges of the range. */
    from = 0;
    to: number;
    cursorNs: number;
    /** Part of the time that charts show. */
    window: [number, number];
    host = false;
    measure: MeasureName = 'live';
    weight: Weight = 'bytes';

    readonly bins: number;
    private readonly ledger: Ledger | null;
    private current: Sums | null = null;
    private readonly listeners: [Change[], () => void][] = [];

    constructor(
        readonly run: Run,
        readonly scale: Scale,
        /** Before, after; empty for a single run. */
        readonly name: string,
    ) {
        this.bins = Math.max(0, run.edges_ns.length - 1);
        this.to = this.bins;
        this.window = [scale.fromNs, scale.toNs];
        this.ledger = run.memory && new Ledger(run.memory);
        this.cursorNs = run.memory?.peak?.time_ns ?? run.edges_ns[this.bins] ?? 0;
        this.measure = this.firstMeasure();
    }

    /** Live memory, unless all processes have ended: then what they never freed, or the peak. */
    private firstMeasure(): MeasureName {
        const { sums, run } = this;
        const any = (name: MeasureName): boolean =>
            sums !== null && sums[name].bytes.some((bytes, at) => bytes > 0 && !run.memory!.stacks[at]!.host);
        return (['live', 'never_freed'] as const).find(any) ?? 'peak';
    }

    get edges(): number[] {
        return this.run.edges_ns;
    }

    get startNs(): number {
        return this.edges[0] ?? 0;
    }

    get endNs(): number {
        return this.edges[this.bins] ?? 0;
    }

    get whole(): boolean {
        return this.from === 0 && this.to === this.bins;
    }

    /** Sums of memory over the range; null without memory. */
    get sums(): Sums | null {
        this.current ??= this.ledger && this.ledger.sums(this.from, this.to);
        return this.current;
    }

    on(changes: Change[], listener: () => void): void {
        this.listeners.push([changes, listener]);
        listener();
    }

    /** Bins between two edges; an empty or impossible range is the whole run. */
    setRange(a: number, b: number): void {
        const from = Math.max(0, Math.min(a, b));
        const to = Math.min(this.bins, Math.max(a, b));
        [this.from, this.to] = from < to ? [from, to] : [0, this.bins];
        this.current = null;
        this.tell('range');
    }

    setCursor(ns: number): void {
        this.cursorNs = Math.min(this.endNs, Math.max(this.startNs, ns));
        this.tell('cursor');
    }

    /** Moves and zooms what charts show, within the run. */
    setWindow(from: number, to: number): void {
        const whole = this.scale.toNs - this.scale.fromNs;
        const length = Math.min(whole, Math.max(1000, to - from));
        const start = Math.min(this.scale.toNs - length, Math.max(this.scale.fromNs, from));
        this.window = [start, start + length];
        this.tell('window');
    }

    /** Zooms by `factor` (below 1: in) around a moment. */
    zoom(factor: number, aroundNs: number): void {
        const [from, to] = this.window;
        const around = Math.min(to, Math.max(from, aroundNs));
        this.setWindow(around - (around - from) * factor, around + (to - around) * factor);
    }

    set(options: Partial<Pick<View, 'host' | 'measure' | 'weight'>>): void {
        Object.assign(this, options);
        this.tell('measure');
    }

    /** The number of the edge that is nearest to a moment. */
    nearestEdge(ns: number): number {
        let low = 0;
        let high = this.bins;
        while (low < high) {
            const middle = (low + high) >> 1;
            if (this.edges[middle]! < ns) low = middle + 1;
            else high = middle;
        }
        const below = this.edges[low - 1];
        return below !== undefined && ns - below <= this.edges[low]! - ns ? low - 1 : low;
    }

    process(pid: number): string {
        const found = this.run.processes.find((one) => one.pid === pid);
        const name = found?.process ?? found?.comm;
        return name ? `${name} (${pid})` : `PID ${pid}`;
    }

    frame(number: number): Frame {
        return this.run.frames[number] ?? ['[unknown]', null, null, null, 0, 0];
    }

    private tell(change: Change): void {
        for (const [changes, listener] of this.listeners) if (changes.includes(change)) listener();
    }
}

const base = (path: string): string => path.slice(path.lastIndexOf('/') + 1);

/** A frame in one line: `train.py:58 step` of Python, else `function (module)`. */
export function frameText([name, file, line, module, python]: Frame): string {
    if (python) return file ? `${base(file)}${line ? `:${line}` : ''} ${name}` : name;
    return module ? `${name} (${base(module)})` : name;
}

/** Where a frame is: file and line if known, else the mapped file. */
export function framePlace([, file, line, module]: Frame): string {
    if (file) return line ? `${file}:${line}` : file;
    return module ?? '';
}
