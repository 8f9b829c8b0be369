import uPlot from 'uplot';
import type { Timeline } from '../document';
import { area, colors } from '../theme';

/** A line of steps without dots. */
export const step: Pick<uPlot.Series, 'paths' | 'points'> = {
    paths: uPlot.paths.stepped!({ align: 1 }),
    points: { show: false },
};

/** No colour of its own for what is left over. */
export const isRest = (label: string): boolean =>
    /^(others?|unknown|rest)\b|^\d+ (others|more)\b/.test(label);

/** The areas of a timeline on top of each other: the sums, the highest first so that none is hidden. */
export function stacked(timeline: Timeline, endNs: number): [uPlot.Series[], uPlot.AlignedData] {
    const { labels, values, reserved } = timeline;
    const times = timeline.times_ns.map((ns) => ns / 1e9);
    const last = times.length - 1;
    // A step holds until the end of the run.
    const lasting = (row: ArrayLike<number>): number[] => [...Array.from(row), row[last] ?? 0];
    const series: uPlot.Series[] = [];
    const rows: number[][] = [];
    const sum = new Float64Array(times.length);
    labels.forEach((label, index) => {
        values[index]!.forEach((value, at) => (sum[at]! += value));
        rows.unshift(lasting(sum));
        const color = area(index, isRest(label));
        series.unshift({
            label,
            fill: color,
            stroke: color,
            width: 1,
            ...step,
        });
    });
    if (reserved) {
        rows.push(lasting(reserved));
        series.push({ label: 'reserved', stroke: () => colors().ink, width: 1.6, ...step });
    }
    const all = [...times, Math.max(endNs / 1e9, times[last] ?? 0)];
    return [series, [all, ...rows] as uPlot.AlignedData];
}

/** The highest sum of a timeline. */
export function highest({ values, times_ns, reserved }: Timeline): number {
    let top = 0;
    for (let at = 0; at < times_ns.length; at += 1) {
        let sum = 0;
        for (const row of values) sum += row[at]!;
        top = Math.max(top, sum, reserved?.[at] ?? 0);
    }
    return top;
}
