import type uPlot from 'uplot';
import { step } from '../charts/stacked';
import { TimeChart } from '../charts/timechart';
import type { Gpu, GpuWork } from '../document';
import { h } from '../dom';
import { count, duration, plural, share } from '../format';
import type { Column } from '../table/column';
import { Table } from '../table/table';
import { area, colors, onTheme } from '../theme';
import type { View } from '../view';

const KINDS: GpuWork[] = ['kernels', 'copies', 'sets', 'graphs'];
const COLORS: Record<GpuWork, number> = { kernels: 0, copies: 4, sets: 3, graphs: 2 };

/** Busy time of each GPU by kind of work, and idle time. */
export function gpus(view: View): HTMLElement | null {
    const known = view.run.gpus.filter((gpu) => gpu.bins?.busy);
    if (known.length === 0) return null;
    const charts = known.map((gpu) => {
        const title = `GPU ${gpu.device}${gpu.name ? ` ${gpu.name}` : ''}`;
        return h('div', {}, h('h4', {}, title), busyChart(view, gpu, title));
    });
    const swatch = (text: string, color: () => string): HTMLElement => {
        const box = h('span', { class: 'swatch', 'aria-hidden': 'true' });
        onTheme(() => (box.style.background = color()));
        return h('span', { class: 'key' }, box, text);
    };
    const kinds = KINDS.filter((kind) => known.some((gpu) => gpu.bins?.[kind]?.some((ns) => ns > 0)));
    const keys = kinds.map((kind) => swatch(kind, () => area(COLORS[kind])));
    const busy = swatch('busy with anything; above it the GPU is idle', () => colors().free);
    return h('div', {}, h('p', { class: 'keys' }, ...keys, busy), ...charts, busyTable(view, known));
}

function busyChart(view: View, gpu: Gpu, title: string): HTMLElement {
    const { edges, bins } = view;
    const times = edges.map((ns) => ns / 1e9);
    const row = (name: GpuWork | 'busy'): number[] => {
        const values = gpu.bins?.[name] ?? [];
        const shares = Array.from({ length: bins }, (_, bin) => {
            const width = edges[bin + 1]! - edges[bin]!;
            return width > 0 ? Math.min(100, (100 * (values[bin] ?? 0)) / width) : 0;
        });
        return [...shares, shares[bins - 1] ?? 0];
    };
    const used = KINDS.filter((kind) => gpu.bins?.[kind]?.some((ns) => ns > 0));
    const line = (kind: GpuWork): uPlot.Series => ({
        label: kind,
        stroke: area(COLORS[kind]),
        width: 1.6,
        ...step,
    });
    const busy: uPlot.Series = {
        label: 'busy',
        fill: () => colors().free,
        stroke: () => colors().freeLine,
        width: 1,
        ...step,
    };
    const shares = row('busy');
    const chart = new TimeChart({
        view,
        name: `busy-${gpu.device}`,
        label: `busy time over time, ${title}`,
        height: 150,
        series: [busy, ...used.map(line)],
        data: [times, shares, ...used.map(row)] as uPlot.AlignedData,
        top: 100,
        unit: 'percent',
        valueText: (ns) => `busy ${(shares[Math.min(bins - 1, view.nearestEdge(ns))] ?? 0).toFixed(1)} %`,
    });
    return chart.element;
}

interface Row extends Record<GpuWork | 'busy' | 'idle', number> {
    gpu: Gpu;
    span: number;
}

function busyTable(view: View, known: Gpu[]): HTMLElement {
    const time = (key: GpuWork | 'busy' | 'idle', title: string): Column<Row> => ({
        key,
        title,
        value: (row) => row[key],
        cell: (row) =>
            h('span', {}, duration(row[key]), h('small', {}, ` ${share(row[key], row.span) || '0.0 %'}`)),
    });
    const gaps = ({ gpu }: Row): string =>
        gpu.gaps == null
            ? ''
            : plural(gpu.gaps, 'gap') +
              (gpu.longest_gap_ns != null ? `, longest ${duration(gpu.longest_gap_ns)}` : '');
    const table = new Table<Row>({
        name: 'gpus',
        caption: 'Busy time in the range; gaps of the whole run',
        columns: [
            {
                key: 'device',
                title: 'GPU',
                value: (row) => row.gpu.device,
                cell: (row) => count(row.gpu.device),
            },
            ...KINDS.map((kind) => time(kind, kind[0]!.toUpperCase() + kind.slice(1))),
            time('busy', 'Busy'),
            time('idle', 'Idle'),
            { key: 'gaps', title: 'Gaps', value: (row) => row.gpu.gaps ?? null, cell: gaps },
        ],
        sort: 'busy',
        id: (row) => String(row.gpu.device),
    });
    view.on(['range'], () => table.show(known.map((gpu) => summed(view, gpu))));
    return table.element;
}

function summed(view: View, gpu: Gpu): Row {
    const sum = (name: GpuWork | 'busy'): number =>
        (gpu.bins?.[name] ?? []).slice(view.from, view.to).reduce((all, ns) => all + ns, 0);
    const span = view.edges[view.to]! - view.edges[view.from]!;
    const busy = sum('busy');
    const kinds = Object.fromEntries(KINDS.map((kind) => [kind, sum(kind)])) as Record<GpuWork, number>;
    return { gpu, span, busy, idle: Math.max(0, span - busy), ...kinds };
}
