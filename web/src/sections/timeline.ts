import { drawIncidents, drawOverlay, drawPeak } from '../charts/marks';
import { highest, isRest, stacked } from '../charts/stacked';
import { TimeChart, stepAt } from '../charts/timechart';
import { commandLine, quoted, rangeOptions, report } from '../command';
import type { Memory, Timeline } from '../document';
import { choice, details, fill, h } from '../dom';
import { moment, plural, size } from '../format';
import { area, onTheme, overlayLine } from '../theme';
import type { View } from '../view';

const NAMES: Record<string, string> = { kind: 'kind', owner: 'owner', site: 'call site' };
const HELP =
    'Drag: range. Click: cursor. Wheel: zoom. Shift and drag: pan. Keys: arrows move the cursor, ' +
    'with shift they select a range; + and − zoom, Page Up and Page Down pan, 0 shows all, p goes to ' +
    'the peak, Escape resets the range.';

/** The highest value that the chart of memory needs to show. */
export function memoryTop(memory: Memory | null): number {
    if (!memory) return 0;
    const lines = Object.values(memory.timelines).map((one) => (one ? highest(one) : 0));
    const overlay = memory.overlay.flatMap((one) => one.points.map(([, bytes]) => bytes));
    return overlay.reduce(
        (top, bytes) => Math.max(top, bytes),
        Math.max(0, memory.peak?.bytes ?? 0, ...lines),
    );
}

/** Memory over time by kind, owner or call site. */
export function timeline(view: View): HTMLElement | null {
    const { memory } = view.run;
    const known = Object.keys(NAMES).filter((by) => memory?.timelines[by]?.labels.length);
    if (!memory || known.length === 0) return null;
    const lines = (by: string): Timeline => memory.timelines[by]!;
    let by = known[0]!;
    const legend = new Legend(view, memory);
    const [series, data] = stacked(lines(by), view.endNs);
    const chart = new TimeChart({
        view,
        name: 'memory',
        label: `memory over time${view.name ? `, ${view.name}` : ''}`,
        height: 320,
        series,
        data,
        top: view.scale.bytes * 1.08,
        unit: 'bytes',
        valueText: (ns) => size(total(lines(by), stepAt(lines(by).times_ns, ns))),
        hover: (ns) => legend.show(ns ?? view.cursorNs, ns === null),
        draw: (plot) => {
            drawOverlay(plot, memory.overlay);
            drawIncidents(plot, memory.incidents);
            if (memory.peak) drawPeak(plot, memory.peak);
        },
    });
    const command = commandLine();
    const change = (next: string): void => {
        by = next;
        legend.of(lines(by), NAMES[by]!);
        chart.element.dataset.by = by;
    };
    change(by);
    const options = known.map((one): [string, string] => [one, NAMES[one]!]);
    const buttons = choice('by', options, by, (next) => {
        change(next);
        chart.setSeries(...stacked(lines(by), view.endNs));
    });
    view.on(['range'], () => command.show(report(view, `--analysis usage${rangeOptions(view)}`)));
    view.on(['cursor'], () => legend.show(view.cursorNs, true));
    const plot = h('code', {}, `gpuprobe plot ${quoted(view.run.file)} -o memory.svg --by kind`);
    return h(
        'div',
        {},
        h('div', { class: 'tools' }, buttons, zoomButtons(view)),
        h('div', { class: 'timeline' }, chart.element, legend.element),
        incidents(view, memory),
        details(
            'mouse and keys',
            h('p', { class: 'note' }, HELP),
            h('p', { class: 'note' }, 'As a picture: ', plot),
        ),
        command.element,
    );
}

function zoomButtons(view: View): HTMLElement {
    const middle = (): number => (view.window[0] + view.window[1]) / 2;
    const button = (text: string, label: string, onclick: () => void): HTMLElement =>
        h('button', { type: 'button', 'aria-label': label, onclick }, text);
    return h(
        'div',
        { class: 'zoom', role: 'group', 'aria-label': 'zoom' },
        button('+', 'zoom in', () => view.zoom(0.5, middle())),
        button('−', 'zoom out', () => view.zoom(2, middle())),
        button('All', 'show all of the time', () => view.setWindow(view.scale.fromNs, view.scale.toNs)),
    );
}

const total = (lines: Timeline, at: number): number =>
    at < 0 ? 0 : lines.values.reduce((sum, row) => sum + row[at]!, 0);

/** The areas of the chart with their values at a moment, at the peak and at the end. */
class Legend {
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

function incidents(view: View, memory: Memory): HTMLElement | null {
    if (memory.incidents.length === 0) return null;
    const span = view.endNs - view.startNs;
    const items = memory.incidents.map((one) => {
        const go = (): void => view.setCursor(one.time_ns);
        const when = h('button', { type: 'button', class: 'link', onclick: go }, moment(one.time_ns, span));
        return h('li', {}, when, ` ${view.process(one.pid)}: ${one.text}`);
    });
    const title = `Out of memory: ${plural(items.length, 'request')} refused`;
    return h('div', { class: 'incidents' }, h('h4', {}, title), h('ul', {}, ...items));
}
