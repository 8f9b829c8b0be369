import { isRest } from '../charts/stacked';
import { stepAt } from '../charts/timechart';
import type { Memory, Timeline } from '../document';
import { fill, h } from '../dom';
import { moment, size } from '../format';
import { area, onTheme, overlayLine } from '../theme';
import type { View } from '../view';

/** The sum of all lines at a time. */
export const total = (lines: Timeline, at: number): number =>
    at < 0 ? 0 : lines.values.reduce((sum, row) => sum + row[at]!, 0);

/** The areas of the chart with their values at a moment, at the peak and at the end. */
export class Legend {
    private readonly head = h('thead');
    private readonly body = h('tbody');
    readonly element = h(
        'table',
        { class: 'legend', 'data-table': 'timeline' },
        h('caption', {}, 'Figures of the chart'),
        this.head,
        this.body,
    );
    private lines: Timeline | null = null;
    private name = '';
    private readonly cells: HTMLElement[] = [];
    private readonly when = h('th', { scope: 'col' });

    constructor(
        private readonly view: View,
        private readonly memory: Memory,
    ) {
        onTheme(() => this.draw());
    }

    of(lines: Timeline, name: string): void {
        this.lines = lines;
        this.name = name;
        this.draw();
    }

    private draw(): void {
        const { lines, view, name } = this;
        if (!lines) return;
        const column = (text: string): HTMLElement => h('th', { scope: 'col' }, text);
        const heads = [
            h('th', { scope: 'col', class: 'text' }, `By ${name}`),
            this.when,
            column('Peak'),
            column('End'),
        ];
        fill(this.head, h('tr', {}, ...heads));
        const peak = stepAt(lines.times_ns, this.memory.peak?.time_ns ?? view.endNs);
        const end = lines.times_ns.length - 1;
        const value = (key: string, bytes: number): HTMLElement =>
            h('td', { 'data-key': key, 'data-value': bytes }, size(bytes));
        this.cells.length = 0;
        const row = (label: string, color: string | null, of: (at: number) => number): HTMLElement => {
            const now = h('td', { 'data-key': 'now' });
            this.cells.push(now);
            const swatch = h('span', { class: 'swatch', 'aria-hidden': 'true' });
            if (color) swatch.style.background = color;
            const head = h('th', { scope: 'row', class: 'text', title: label }, color && swatch, label);
            return h('tr', { 'data-id': label }, head, now, value('peak', of(peak)), value('end', of(end)));
        };
        const rows = lines.labels.map((label, index) =>
            row(label, area(index, isRest(label)), (at) => (at < 0 ? 0 : lines.values[index]![at]!)),
        );
        rows.reverse();
        fill(
            this.body,
            ...rows,
            row('total', null, (at) => total(lines, at)),
            ...this.overlay(),
        );
        this.show(view.cursorNs, true);
    }

    private overlay(): HTMLElement[] {
        return this.memory.overlay.map((one, index) => {
            const swatch = h('span', { class: 'swatch line', 'aria-hidden': 'true' });
            swatch.style.background = overlayLine(index);
            const top = one.points.reduce((most, [, bytes]) => Math.max(most, bytes), 0);
            const head = h('th', { scope: 'row', class: 'text', title: one.label }, swatch, one.label);
            const most = h(
                'td',
                { colspan: 3, 'data-key': 'highest', 'data-value': top },
                `highest ${size(top)}`,
            );
            return h('tr', { 'data-id': one.label }, head, most);
        });
    }

    /** Values at `ns`. */
    show(ns: number, pinned: boolean): void {
        const { lines, view } = this;
        if (!lines) return;
        const at = stepAt(lines.times_ns, ns);
        fill(this.when, moment(ns, view.endNs - view.startNs));
        this.when.classList.toggle('hovered', !pinned);
        lines.labels.forEach((_, index) => this.put(index, at < 0 ? 0 : lines.values[index]![at]!));
        this.put(lines.labels.length, total(lines, at));
    }

    private put(index: number, bytes: number): void {
        const cell = this.cells[index]!;
        cell.dataset.value = String(bytes);
        cell.textContent = size(bytes);
    }
}
