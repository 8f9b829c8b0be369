import type { Memory } from './document';

/** Integers per change of a stack: bin, allocated bytes, allocations, freed bytes, frees, held bytes,
 * held, peak bytes, peak allocations. */
const WIDTH = 9;

export type MeasureName = 'live' | 'peak' | 'allocated' | 'freed' | 'never_freed';

/** Bytes and allocations of each stack. */
export interface Measure {
    bytes: Float64Array;
    count: Float64Array;
}

export type Sums = Record<MeasureName, Measure> & {
    /** The highest total within the range, null if nothing is known of it. */
    peakBytes: number | null;
    peakNs: number | null;
};

/** The changes of all stacks, in columns. */
export class Ledger {
    private readonly stack: Int32Array;
    private readonly columns: Float64Array[];

    constructor(private readonly memory: Memory) {
        const rows = memory.stacks.reduce((sum, one) => sum + one.changes.length / WIDTH, 0);
        this.stack = new Int32Array(rows);
        this.columns = Array.from({ length: WIDTH }, () => new Float64Array(rows));
        let row = 0;
        memory.stacks.forEach(({ changes }, stack) => {
            for (let at = 0; at < changes.length; at += WIDTH, row += 1) {
                this.stack[row] = stack;
                for (let column = 0; column < WIDTH; column += 1) {
                    this.columns[column]![row] = changes[at + column]!;
                }
            }
        });
    }

    /** What each stack has in bins `from` up to, not including, `to`. */
    sums(from: number, to: number): Sums {
        const peakBin = this.peakBin(from, to);
        const peak = peakBin === null ? null : this.memory.bins[peakBin]!;
        const sums = {
            ...this.ends(to),
            ...this.within(from, to),
            peak: this.atPeak(peakBin),
            peakNs: peak && peak[0],
            peakBytes: peak && peak[1],
        };
        return sums;
    }

    /** The first bin with the highest total. */
    private peakBin(from: number, to: number): number | null {
        let best: number | null = null;
        for (let bin = from; bin < to; bin += 1) {
            const one = this.memory.bins[bin];
            if (one && (best === null || one[1] > this.memory.bins[best]![1])) best = bin;
        }
        return best;
    }

    private empty(): Measure {
        const stacks = this.memory.stacks.length;
        return { bytes: new Float64Array(stacks), count: new Float64Array(stacks) };
    }

    /** Live at the end of bin `to - 1`; and that with what was held when its process ended. */
    private ends(to: number): { live: Measure; never_freed: Measure } {
        const [bin, bytes, count, freed, frees, heldBytes, held] = this.columns as Columns;
        const live = this.empty();
        const never = this.empty();
        for (let row = 0; row < this.stack.length; row += 1) {
            if (bin[row]! >= to) continue;
            const stack = this.stack[row]!;
            const left = bytes[row]! - freed[row]!;
            const leftCount = count[row]! - frees[row]!;
            never.bytes[stack]! += left;
            never.count[stack]! += leftCount;
            live.bytes[stack]! += left - heldBytes[row]!;
            live.count[stack]! += leftCount - held[row]!;
        }
        return { live, never_freed: never };
    }

    private within(from: number, to: number): { allocated: Measure; freed: Measure } {
        const [bin, bytes, count, freedBytes, frees] = this.columns as Columns;
        const allocated = this.empty();
        const freed = this.empty();
        for (let row = 0; row < this.stack.length; row += 1) {
            if (bin[row]! < from || bin[row]! >= to) continue;
            const stack = this.stack[row]!;
            allocated.bytes[stack]! += bytes[row]!;
            allocated.count[stack]! += count[row]!;
            freed.bytes[stack]! += freedBytes[row]!;
            freed.count[stack]! += frees[row]!;
        }
        return { allocated, freed };
    }

    /** Live at the highest moment of bin `peakBin`. */
    private atPeak(peakBin: number | null): Measure {
        if (peakBin === null) return this.empty();
        const [bin, , , , , , , peakBytes, peakCount] = this.columns as Columns;
        const peak = this.ends(peakBin).live;
        for (let row = 0; row < this.stack.length; row += 1) {
            if (bin[row] !== peakBin) continue;
            const stack = this.stack[row]!;
            peak.bytes[stack]! += peakBytes[row]!;
            peak.count[stack]! += peakCount[row]!;
        }
        return peak;
    }
}

type C = Float64Array;
type Columns = [C, C, C, C, C, C, C, C, C];

/** Sums columns of flat changes (the bin first) over bins `from` up to, not including, `to`. */
export function sumFlat(changes: number[], width: number, from: number, to: number): number[] {
    const sums = new Array<number>(width).fill(0);
    for (let at = 0; at < changes.length; at += width) {
        const bin = changes[at]!;
        if (bin < from || bin >= to) continue;
        for (let column = 1; column < width; column += 1) sums[column]! += changes[at + column]!;
    }
    return sums;
}

/** Counts by bucket of a flat histogram (bin, bucket, count), within the bins. */
export function buckets(histogram: number[], from: number, to: number): Map<number, number> {
    const counts = new Map<number, number>();
    for (let at = 0; at < histogram.length; at += 3) {
        const bin = histogram[at]!;
        if (bin < from || bin >= to) continue;
        const bucket = histogram[at + 1]!;
        counts.set(bucket, (counts.get(bucket) ?? 0) + histogram[at + 2]!);
    }
    return counts;
}
