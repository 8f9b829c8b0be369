import type uPlot from 'uplot';
import { TimeChart, step } from '../chart';
import type { Gpu, GpuWork } from '../document';
import { h, swatch } from '../dom';
import { duration, plural, share } from '../format';
import { Table, number } from '../table';
import { area, css } from '../theme';
import type { View } from '../view';

const KINDS: GpuWork[] = ['kernels', 'copies', 'sets', 'graphs'];
const COLOR: Record<GpuWork, number> = { kernels: 0, copies: 4, sets: 3, graphs: 2 };

/** Busy time of each GPU by kind of work, and idle time. */
export function busyTime(view: View): HTMLElement {
    const { gpus } = view.run;
    const used = KINDS.filter((kind) => gpus.some(({ bins }) => bins[kind].some((ns) => ns > 0)));
    const keys = used.map((kind) => swatch(area(COLOR[kind]), kind));
    keys.push(swatch('var(--free)', 'busy (idle above it)'));
    const charts = gpus.flatMap((gpu) => {
        const title = `GPU ${gpu.device}${gpu.name ? ` ${gpu.name}` : ''}`;
        return [h('h4', {}, title), busyChart(view, gpu, used, title)];
    });
    return h('div', {}, h('p', { class: 'keys' }, ...keys), ...charts, busyTable(view, used));
}

function busyChart(view: View, gpu: Gpu, used: GpuWork[], title: string): HTMLElement {
    const { edges } = view;
    const shares = (name: GpuWork | 'busy'): number[] => {
        const bins = gpu.bins[name].map((ns, bin) =>
            Math.min(100, (100 * ns) / (edges[bin + 1]! - edges[bin]!)),
        );
        return [...bins, bins.at(-1)!];
    };
    const line = (kind: GpuWork): uPlot.Series => ({ stroke: area(COLOR[kind]), width: 1.6, ...step });
    const busy: uPlot.Series = { fill: () => css('free'), stroke: () => css('muted'), width: 1, ...step };
    return new TimeChart({
        view,
        name: `busy-${gpu.device}`,
        label: `busy time over time, ${title}`,
        height: 150,
        top: 100,
        unit: 'percent',
        series: [busy, ...used.map(line)],
        data: [edges.map((ns) => ns / 1e9), shares('busy'), ...used.map(shares)],
    }).element;
}

interface Row {
    gpu: Gpu;
    span: number;
    ns: Record<GpuWork | 'busy', number>;
}

function busyTable(view: View, used: GpuWork[]): HTMLElement {
    const show = (ns: number, { span }: Row): Node =>
        h('span', {}, duration(ns), h('small', {}, ` ${share(ns, span)}`));
    const gaps = (n: number, { gpu }: Row): string =>
        `${plural(n, 'gap')}, longest ${duration(gpu.longest_gap_ns)}`;
    const table = new Table<Row>({
        name: 'gpus',
        caption: 'Busy time in the range; gaps of the whole run',
        columns: [
            number('device', 'GPU', ({ gpu }) => gpu.device),
            ...used.map((kind) =>
                number<Row>(kind, kind[0]!.toUpperCase() + kind.slice(1), ({ ns }) => ns[kind], show),
            ),
            number('busy', 'Busy', ({ ns }) => ns.busy, show),
            number('idle', 'Idle', ({ ns, span }) => Math.max(0, span - ns.busy), show),
            number('gaps', 'Gaps', ({ gpu }) => gpu.gaps, gaps),
        ],
        sort: 'busy',
        id: ({ gpu }) => String(gpu.device),
    });
    view.on(() => {
        const rows = view.run.gpus.map((gpu): Row => {
            const sums = Object.entries(gpu.bins).map(([kind, bins]) => {
                return [kind, bins.slice(view.from, view.to).reduce((sum, ns) => sum + ns, 0)];
            });
            const span = view.edges[view.to]! - view.edges[view.from]!;
            return { gpu, span, ns: Object.fromEntries(sums) as Row['ns'] };
        });
        table.show(rows);
    });
    return table.element;
}
