import { MemoryMap } from '../charts/map';
import { isRest, stacked } from '../charts/stacked';
import { TimeChart, stepAt } from '../charts/timechart';
import { commandLine, rangeOptions, report } from '../command';
import type { Pytorch, TensorSite } from '../document';
import { details, h } from '../dom';
import { count, size } from '../format';
import { sumFlat } from '../sums';
import type { Column } from '../table/column';
import { Table } from '../table/table';
import { area, colors, onTheme } from '../theme';
import type { View } from '../view';
import { panel } from './section';
import { frames } from './sites';

/** What the allocators of PyTorch handed out, one part per process and device. */
export function tensors(view: View): HTMLElement | null {
    const known = view.run.pytorch;
    if (known.length === 0) return null;
    return h('div', {}, ...known.map((one) => allocator(view, one)));
}

function allocator(view: View, one: Pytorch): HTMLElement {
    const title = `${view.process(one.pid)}, cuda:${one.device}`;
    const command = commandLine();
    view.on(['range'], () => {
        const pid = view.run.processes.length > 1 ? ` --pid ${one.pid}` : '';
        command.show(report(view, `--analysis leakage${pid}${rangeOptions(view)} --top all`));
    });
    return panel(
        'tensors',
        title,
        one.timeline && tensorTimeline(view, one, title),
        tensorSites(view, one),
        one.map && one.map.segments.length > 0 ? mapWithFigures(one) : null,
        command.element,
    );
}

function tensorTimeline(view: View, one: Pytorch, title: string): HTMLElement {
    const lines = one.timeline!;
    const [series, data] = stacked(lines, view.endNs);
    const total = (at: number): number => (at < 0 ? 0 : lines.values.reduce((sum, row) => sum + row[at]!, 0));
    const chart = new TimeChart({
        view,
        name: 'tensors',
        label: `tensors over time, ${title}`,
        height: 220,
        series,
        data,
        top: view.scale.tensorBytes * 1.08,
        unit: 'bytes',
        valueText: (ns) => {
            const at = stepAt(lines.times_ns, ns);
            const reserved = lines.reserved ? `, reserved ${size(lines.reserved[at] ?? 0)}` : '';
            return `tensors ${size(total(at))}${reserved}`;
        },
    });
    const keys = lines.labels.map((label, index) => key(label, () => area(index, isRest(label))));
    if (lines.reserved) keys.push(key('reserved', () => colors().ink, 'line'));
    return h('div', {}, chart.element, h('p', { class: 'keys' }, ...keys), figures(lines));
}

function key(text: string, color: () => string, more = ''): HTMLElement {
    const swatch = h('span', { class: `swatch ${more}`, 'aria-hidden': 'true' });
    onTheme(() => (swatch.style.background = color()));
    return h('span', { class: 'key' }, swatch, text);
}

/** Highest and last value of each line of the chart. */
function figures(lines: NonNullable<Pytorch['timeline']>): HTMLElement {
    const named: [string, number[]][] = lines.labels.map((label, at) => [label, lines.values[at]!]);
    if (lines.reserved) named.push(['reserved', lines.reserved]);
    const number = (name: string, bytes: number): HTMLElement =>
        h('td', { 'data-key': name, 'data-value': bytes }, size(bytes));
    const rows = named.map(([label, row]) => {
        const most = row.reduce((a, b) => Math.max(a, b), 0);
        const cells = [number('highest', most), number('end', row[row.length - 1] ?? 0)];
        return h('tr', { 'data-id': label }, h('th', { scope: 'row' }, label), ...cells);
    });
    const heads = ['Line', 'Highest', 'End'].map((text) => h('th', { scope: 'col' }, text));
    const table = h(
        'table',
        { 'data-table': 'tensor-timeline' },
        h('thead', {}, h('tr', {}, ...heads)),
        h('tbody', {}, ...rows),
    );
    return details('figures of the chart', table);
}

interface Row {
    id: string;
    label: string;
    live: number;
    tensors: number | null;
    allocated: number | null;
    freed: number | null;
    stack: number[];
}

function tensorSites(view: View, one: Pytorch): HTMLElement {
    const bytes = (name: 'live' | 'allocated' | 'freed', title: string, hint: string): Column<Row> => ({
        key: name,
        title,
        hint,
        value: (row) => row[name],
        cell: (row) => (row[name] === null ? '' : size(row[name])),
        total: (rows) => {
            const value = rows.reduce((sum, row) => sum + (row[name] ?? 0), 0);
            return { show: size(value), value };
        },
    });
    const table = new Table<Row>({
        name: 'tensor-sites',
        caption: 'Call sites of tensors in the range',
        columns: [
            { key: 'id', title: '#', value: (row) => row.id, cell: (row) => row.id },
            {
                key: 'label',
                title: 'Call site',
                text: true,
                value: (row) => row.label,
                cell: (row) => row.label,
            },
            bytes('live', 'Live', 'live at the end of the range'),
            {
                key: 'tensors',
                title: 'Tensors',
                hint: 'live at the end of the range',
                value: (row) => row.tensors,
                cell: (row) => (row.tensors === null ? '' : count(row.tensors)),
            },
            bytes('allocated', 'Allocated', 'handed out in the range'),
            bytes('freed', 'Freed', 'taken back in the range'),
        ],
        sort: 'live',
        id: (row) => row.id,
        detail: (row) => frames(view, row.stack),
    });
    view.on(['range'], () => table.show(siteRows(view, one)));
    return table.element;
}

function siteRows(view: View, one: Pytorch): Row[] {
    const rows = one.sites.map((site) => siteRow(view, site));
    const before = one.before_bytes?.[view.to - 1] ?? 0;
    const label = 'handed out before gpuprobe attached';
    const none = { tensors: null, allocated: null, freed: null, stack: [] };
    if (before > 0) rows.push({ id: 'before', label, live: before, ...none });
    return rows.filter((row) => row.live || row.tensors || row.allocated || row.freed);
}

function siteRow(view: View, { id, label, stack, changes }: TensorSite): Row {
    const [, allBytes, all, allFreed, frees] = sumFlat(changes, 5, 0, view.to) as Five;
    const [, allocated, , freed] = sumFlat(changes, 5, view.from, view.to) as Five;
    const live = { live: allBytes - allFreed, tensors: all - frees };
    return { id: `T${id}`, label, ...live, allocated, freed, stack };
}
type Five = [number, number, number, number, number];

const FIGURES: [string, string, boolean][] = [
    ['allocated_bytes', 'Handed out', true],
    ['reserved_bytes', 'Reserved', true],
    ['peak_allocated_bytes', 'Peak handed out', true],
    ['peak_reserved_bytes', 'Peak reserved', true],
    ['requested_bytes', 'Requested', true],
    ['before_bytes', 'From before attach', true],
    ['tensors', 'Tensors', false],
    ['segments', 'Segments', false],
    ['largest_free_bytes', 'Largest free block', true],
    ['largest_fit_bytes', 'Largest request that fits', true],
    ['empty_cache_bytes', 'empty_cache() gives back', true],
    ['pinned_by_small_bytes', 'Held by less than 5 %', true],
];

/** The map of segments beside the figures of the report, both at the end of the recording. */
function mapWithFigures(one: Pytorch): HTMLElement {
    const known = FIGURES.filter(([name]) => typeof one.report[name] === 'number');
    const items = known.map(([name, text, bytes]) => {
        const value = one.report[name] as number;
        const shown = bytes ? size(value) : count(value);
        return h('div', {}, h('dt', {}, text), h('dd', { 'data-figure': name, 'data-value': value }, shown));
    });
    const map = new MemoryMap(one.map!.segments, one.sites, one.timeline?.labels ?? []);
    return h(
        'div',
        { class: 'map' },
        h('div', {}, h('h4', {}, 'Segments and their blocks at the end of the recording'), map.element),
        h('dl', { class: 'figures' }, ...items),
    );
}
