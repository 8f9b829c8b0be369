import { highestBin } from '../bins';
import { h } from '../dom';
import { moment, size } from '../format';
import type { View } from '../view';

/** The range that filters what is below: two inputs in seconds that snap to edges of bins, and a reset. */
export function rangeBar(view: View): HTMLElement | null {
    if (view.bins === 0) return null;
    const input = (name: string, whole: number, set: (edge: number) => void): HTMLInputElement => {
        const onchange = (): void => {
            const ns = field.valueAsNumber * 1e9;
            set(Number.isFinite(ns) ? view.nearestEdge(ns) : whole);
        };
        const field = h('input', { type: 'number', step: 'any', name, onchange });
        return field;
    };
    const from = input('from', 0, (edge) => view.setRange(edge, edge < view.to ? view.to : view.bins));
    const to = input('to', view.bins, (edge) => view.setRange(edge > view.from ? view.from : 0, edge));
    const reset = h('button', { type: 'button', onclick: () => view.setRange(0, view.bins) }, 'Reset');
    const about = h('span', { role: 'status' });
    const title = view.name ? `Range, ${view.name}` : 'Range';
    const bar = h(
        'div',
        { class: 'range', role: 'group', 'aria-label': title },
        h('strong', {}, title),
        h('label', {}, 'from ', from, ' s'),
        h('label', {}, 'to ', to, ' s'),
        reset,
        about,
    );
    view.on(() => {
        const [start, end] = [view.edges[view.from]!, view.edges[view.to]!];
        from.value = String(parseFloat(moment(start, view.span)));
        to.value = String(parseFloat(moment(end, view.span)));
        reset.disabled = view.whole;
        const { memory } = view.run;
        const [ns, bytes] = memory?.bins[highestBin(memory, view.from, view.to)] ?? [null, null];
        const part = view.whole
            ? 'the whole run'
            : `${moment(end - start, view.span)}, bins ${view.from + 1} to ${view.to} of ${view.bins}`;
        about.textContent = ns === null ? part : `${part}, peak ${size(bytes)} at ${moment(ns, view.span)}`;
        Object.assign(bar.dataset, {
            peakNs: ns ?? '',
            peakBytes: bytes ?? '',
            from: view.from === 0 ? '' : start,
            to: view.to === view.bins ? '' : end - 1,
            edges: `${view.from} ${view.to}`,
        });
    });
    return bar;
}
