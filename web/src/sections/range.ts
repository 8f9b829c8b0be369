import { h } from '../dom';
import { moment, seconds, size } from '../format';
import type { View } from '../view';

/** The range that filters what is below: two inputs in seconds, and a reset. */
export function rangeBar(view: View): HTMLElement | null {
    if (view.bins === 0) return null;
    const from = input(view, 'from', (edge) => view.setRange(edge, edge < view.to ? view.to : view.bins));
    const to = input(view, 'to', (edge) => view.setRange(edge > view.from ? view.from : 0, edge));
    const reset = h(
        'button',
        { type: 'button', class: 'reset', onclick: () => view.setRange(0, view.bins) },
        'Reset',
    );
    const said = h('span', { class: 'said', role: 'status' });
    const name = view.name ? ` ${view.name}` : '';
    const bar = h(
        'div',
        {
            class: 'range',
            role: 'group',
            'aria-label': `range of time${name}`,
            'data-run': view.name || 'run',
        },
        h('strong', {}, view.name ? `Range, ${view.name}` : 'Range'),
        h('label', {}, 'from ', from, ' s'),
        h('label', {}, 'to ', to, ' s'),
        reset,
        said,
    );
    view.on(['range'], () => {
        const [start, end] = [view.edges[view.from]!, view.edges[view.to]!];
        from.value = seconds(start);
        to.value = seconds(end);
        reset.disabled = view.whole;
        said.textContent = about(view);
        bar.dataset.peakNs = String(view.sums?.peakNs ?? '');
        bar.dataset.peakBytes = String(view.sums?.peakBytes ?? '');
        bar.dataset.from = view.from === 0 ? '' : String(start);
        bar.dataset.to = view.to === view.bins ? '' : String(end - 1);
        bar.dataset.edges = `${view.from} ${view.to}`;
    });
    return bar;
}

/** How long the range is, and its peak. */
function about(view: View): string {
    const span = view.endNs - view.startNs;
    const length = view.edges[view.to]! - view.edges[view.from]!;
    const bins = `bins ${view.from + 1} to ${view.to} of ${view.bins}`;
    const part = view.whole ? 'the whole run' : `${moment(length, span)}, ${bins}`;
    const { peakNs, peakBytes } = view.sums ?? { peakNs: null, peakBytes: null };
    return peakNs === null || peakBytes === null
        ? part
        : `${part}, peak ${size(peakBytes)} at ${moment(peakNs, span)}`;
}

/** A time in seconds that snaps to the nearest edge of a bin. */
function input(view: View, name: 'from' | 'to', set: (edge: number) => void): HTMLInputElement {
    const field = h('input', {
        type: 'number',
        step: 'any',
        name,
        min: seconds(view.startNs),
        max: seconds(view.endNs),
        onchange: () => {
            const ns = field.valueAsNumber * 1e9;
            const whole = name === 'from' ? 0 : view.bins;
            set(Number.isFinite(ns) ? view.nearestEdge(ns) : whole);
        },
    });
    return field;
}
