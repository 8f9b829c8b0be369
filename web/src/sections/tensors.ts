import { areaChart } from '../areas';
import type { Path, Tensors } from '../document';
import { details, h, panel } from '../dom';
import { count, size } from '../format';
import { COLORS } from '../theme';
import { type View, fullLabel } from '../view';
import { heldParts } from './holders';
import { segmentMap } from './segments';

/** Tensors by the allocators of frameworks, one part per process and device. */
export function tensors(view: View): HTMLElement | null {
    const known = view.run.tensors;
    return known.length > 0 ? h('div', {}, ...known.map((one) => allocator(view, one))) : null;
}

function allocator(view: View, one: Tensors): HTMLElement {
    const title = `${view.process(one.pid)}, cuda:${one.device}`;
    const label = (path: Path): string => fullLabel(one, path);
    const chart = areaChart(view, one, {
        name: 'tensors',
        label: `tensors over time, ${title}`,
        height: 220,
        top: view.scale.tensorBytes * 1.08,
        by: [['call site', label]],
        reserved: one.reserved,
    });
    const known = view.scale.colors.get('tensors call site')!;
    const colors = one.paths.map((path) => known.get(label(path)) ?? COLORS);
    const pid = view.run.processes.length > 1 ? ` --pid ${one.pid}` : '';
    return panel(
        title,
        chart,
        heldParts(view, one, 'tensor-sites', pid),
        one.segments.length > 0 && segmentMap(one, colors),
        one.report && figures(one.report),
    );
}

const FIGURES: [string, string, (value: number) => string][] = [
    ['allocated_bytes', 'Allocated', size],
    ['reserved_bytes', 'Reserved', size],
    ['peak_allocated_bytes', 'Peak allocated', size],
    ['peak_reserved_bytes', 'Peak reserved', size],
    ['requested_bytes', 'Requested', size],
    ['before_bytes', 'Allocated before attach', size],
    ['line_bytes', 'Allocated in windows: their lines are known', size],
    ['tensors', 'Tensors', count],
    ['segments', 'Segments', count],
    ['largest_free_bytes', 'Largest free block', size],
    ['largest_fit_bytes', 'Largest request that fits', size],
    ['empty_cache_bytes', 'Freed by empty_cache()', size],
    ['pinned_by_small_bytes', 'Segments used under 5 %', size],
];

/** The figures of the report, at the end of the recording. */
function figures(report: Record<string, unknown>): HTMLElement {
    const items = FIGURES.map(([name, title, show]) => {
        const value = report[name];
        if (typeof value !== 'number') return null;
        return h(
            'div',
            {},
            h('dt', {}, title),
            h('dd', { 'data-figure': name, 'data-value': value }, show(value)),
        );
    });
    return details('Allocator at the end of the recording', h('dl', { class: 'figures' }, ...items));
}
