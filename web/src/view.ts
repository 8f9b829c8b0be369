import { type Figures, addFigures, figuresOf } from './bins';
import type { Frame, Held, Path, Run } from './document';

/** Extents that two runs share so that their charts can be compared. */
export interface Scale {
    fromNs: number;
    toNs: number;
    bytes: number;
    tensorBytes: number;
    /** Numbers of colours by label, for each way to group. */
    colors: Map<string, Map<string, number>>;
}

/** A run and the range of it that is looked at. */
export class View {
    /** Numbers of the edges of the range. */
    from = 0;
    to: number;
    readonly edges: number[];
    readonly bins: number;
    private readonly listeners: (() => void)[] = [];
    private readonly figures = new Map<Held, Figures[]>();

    constructor(
        readonly run: Run,
        readonly scale: Scale,
        /** Before, after; empty for a single run. */
        readonly name: string,
    ) {
        this.edges = run.edges_ns;
        this.to = this.bins = Math.max(0, this.edges.length - 1);
    }

    /** Time of the whole run, ns. */
    get span(): number {
        return this.edges[this.bins]! - this.edges[0]!;
    }

    get whole(): boolean {
        return this.from === 0 && this.to === this.bins;
    }

    /** Figures of the range by call path. */
    figuresOf(held: Held): Figures[] {
        if (!this.figures.has(held)) this.figures.set(held, figuresOf(held, this.from, this.to));
        return this.figures.get(held)!;
    }

    /** The sums of GPU memory in the range. */
    sumsOf(held: Held): Figures {
        return addFigures(this.figuresOf(held).filter((_, at) => !held.paths[at]!.host));
    }

    /** Calls `listener` now and whenever the range changes. */
    on(listener: () => void): void {
        this.listeners.push(listener);
        listener();
    }

    /** Bins between two edges; an empty range is the whole run. */
    setRange(a: number, b: number): void {
        [this.from, this.to] = a === b ? [0, this.bins] : [Math.min(a, b), Math.max(a, b)];
        this.figures.clear();
        for (const listener of this.listeners) listener();
    }

    /** The number of the edge that is nearest to a moment. */
    nearestEdge(ns: number): number {
        const after = this.edges.findIndex((edge) => edge >= ns);
        if (after <= 0) return after < 0 ? this.bins : 0;
        return ns - this.edges[after - 1]! <= this.edges[after]! - ns ? after - 1 : after;
    }

    process(pid: number): string {
        const name = this.run.processes.find((one) => one.pid === pid)?.comm;
        return name ? `${name} (${pid})` : `PID ${pid}`;
    }

    /** The process, if there are several. */
    ofSeveral(pid: number): string {
        return this.run.processes.length > 1 ? this.process(pid) : '';
    }

    frame(number: number): Frame {
        return this.run.frames[number] ?? ['[unknown]', null, null, null, 0, 0];
    }
}

/** Whether anything was found that is to be seen first. */
export const leaks = ({ run }: View): boolean =>
    run.explain?.verdicts.some(({ grade }) => grade === 'LEAK') ?? false;

const base = (path: string): string => path.slice(path.lastIndexOf('/') + 1);

/** The call site of a path: `#` or, of tensors, `T` with its number, or what stands for many. */
export const siteOf = ({ site, kind, function: api }: Path): string =>
    site === null ? api : `${kind === 'tensors' ? 'T' : '#'}${site}`;

/** The label of a call site. */
export const labelOf = ({ sites }: Held, { pid, site, function: api }: Path): string =>
    sites[`${pid}:${site}`] ?? api;

export const fullLabel = (held: Held, path: Path): string =>
    path.site === null ? path.function : `${siteOf(path)} ${labelOf(held, path)}`;

/** A label as its innermost lines that `all` others lack, which tell it from these, and where in its path they are. */
export function distinct(label: string, all: string[]): [string, string] {
    const path = (one: string): string => one.replace(/^[#T]\d+ /, '');
    const inside = (part: string): string => ` > ${part} > `;
    const own = path(label);
    const others = all.map(path).filter((one) => one !== own);
    const parts = others.length > 0 ? own.split(' > ') : [];
    for (let length = 1; length < parts.length; length += 1) {
        for (let at = parts.length - length; at >= 0; at -= 1) {
            const part = parts.slice(at, at + length).join(' > ');
            if (part === '...' || others.some((one) => inside(one).includes(inside(part)))) continue;
            parts.splice(at, length, '…');
            return [label.slice(0, -own.length) + part, parts.join(' > ')];
        }
    }
    return [label, ''];
}

/** A frame in one line: `train.py:58 step` of Python, else `function (module)`. */
export function frameText([name, file, line, module, python]: Frame): string {
    if (python) return file ? `${base(file)}${line ? `:${line}` : ''} ${name}` : name;
    return module ? `${name} (${base(module)})` : name;
}

/** Where a frame is: file and line if known, else the mapped file. */
export function framePlace([, file, line, module]: Frame): string {
    return file ? file + (line ? `:${line}` : '') : (module ?? '');
}
