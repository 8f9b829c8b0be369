import type { Held, Path } from './document';

/** Sums of flat rows, each a bin and its figures, over the bins `from` up to, not including, `to`. */
export function sumBins(rows: number[], width: number, from: number, to: number): number[] {
    const sums = new Array<number>(width).fill(0);
    for (let at = 0; at < rows.length; at += width) {
        if (rows[at]! < from || rows[at]! >= to) continue;
        for (let column = 1; column < width; column += 1) sums[column]! += rows[at + column]!;
    }
    return sums;
}

/** Columns of memory: bin; bytes and allocations made, freed, held at the end of their process; and the change of
 * what is live from the beginning of the bin to its highest total. */
export const COLUMNS = 9;
type Row = [number, number, number, number, number, number, number, number, number];

export const MEASURES = ['live', 'peak', 'allocated', 'freed', 'never_freed'] as const;
export type Measure = (typeof MEASURES)[number];
/** Bytes and allocations. */
export type Amount = [number, number];
export type Figures = Record<Measure, Amount>;

const minus = (a: Amount, b: Amount): Amount => [a[0] - b[0], a[1] - b[1]];
const plus = (a: Amount, b: Amount): Amount => [a[0] + b[0], a[1] + b[1]];

/** The bin with the highest total. */
export function highestBin({ bins }: Held, from: number, to: number): number {
    let best = from;
    for (let bin = from + 1; bin < to; bin += 1) if (bins[bin]![1] > bins[best]![1]) best = bin;
    return best;
}

/** The figures of each call path in the bins `from` up to `to`. */
export function figuresOf(held: Held, from: number, to: number): Figures[] {
    const top = highestBin(held, from, to);
    return held.paths.map(({ changes }) => {
        const sum = (first: number, last: number): Row => sumBins(changes, COLUMNS, first, last) as Row;
        const never = ([, a, b, c, d]: Row): Amount => [a - c, b - d];
        const live = (row: Row): Amount => minus(never(row), [row[5], row[6]]);
        const [all, own, before, at] = [sum(0, to), sum(from, to), sum(0, top), sum(top, top + 1)];
        return {
            live: live(all),
            peak: plus(live(before), [at[7], at[8]]),
            allocated: [own[1], own[2]],
            freed: [own[3], own[4]],
            never_freed: never(all),
        };
    });
}

export function addFigures(all: Figures[]): Figures {
    const sum = (name: Measure): Amount => all.reduce((sum, one) => plus(sum, one[name]), [0, 0] as Amount);
    return Object.fromEntries(MEASURES.map((name) => [name, sum(name)])) as Figures;
}

/** What is not freed at the end of the range, in words: of processes that ended, nothing is live. */
export const leftWord = ({ live, never_freed }: Figures): string =>
    live[0] === never_freed[0] ? 'Still held' : 'Never freed';

/** Memory over time by label, with two points a bin: its highest total and its end. A value holds until the next. */
export interface Areas {
    labels: string[];
    times_ns: number[];
    values: number[][];
}

export const REST = 'all others';

/** Areas of the `most` labels that have most at the peak, and one of the rest. */
export function areasOf(
    held: Held,
    edges: number[],
    labelOf: (path: Path) => string | null,
    most: number,
): Areas {
    const bins = held.bins.length;
    const sums = new Map<string, { net: number[]; top: number[] }>();
    const sumsOf = (label: string): { net: number[]; top: number[] } => {
        const none = (): number[] => new Array<number>(bins).fill(0);
        if (!sums.has(label)) sums.set(label, { net: none(), top: none() });
        return sums.get(label)!;
    };
    for (const path of held.paths) {
        const label = labelOf(path);
        if (label === null) continue;
        const { net, top } = sumsOf(label);
        const { changes } = path;
        for (let at = 0; at < changes.length; at += COLUMNS) {
            const bin = changes[at]!;
            net[bin]! += changes[at + 1]! - changes[at + 3]! - changes[at + 5]!;
            top[bin]! += changes[at + 7]!;
        }
    }
    // The highest total is drawn for half of its bin at least.
    const wide = (ns: number, bin: number): number => Math.min(ns, (edges[bin]! + edges[bin + 1]!) / 2);
    const highest = highestBin(held, 0, bins);
    const lines = [...sums].map(([label, { net, top }]) => {
        let live = 0;
        const points = net.flatMap((change, bin) => [live + top[bin]!, (live += change)]);
        return { label, points: [0, ...points], rank: points[2 * highest]! };
    });
    lines.sort((a, b) => b.rank - a.rank);
    const rest = lines.splice(most);
    // As in pictures of `gpuprobe plot`: the largest first.
    const largest = (points: number[]): number => points.reduce((top, bytes) => Math.max(top, bytes), 0);
    lines.sort((a, b) => largest(b.points) - largest(a.points));
    if (rest.length > 0) {
        const points = rest[0]!.points.map((_, at) => rest.reduce((sum, one) => sum + one.points[at]!, 0));
        lines.push({ label: REST, points, rank: 0 });
    }
    const shown = lines.filter(({ points }) => points.some((bytes) => bytes > 0));
    return {
        labels: shown.map(({ label }) => label),
        times_ns: [edges[0]!, ...held.bins.flatMap(([ns], bin) => [wide(ns, bin), edges[bin + 1]!])],
        values: shown.map(({ points }) => points),
    };
}
