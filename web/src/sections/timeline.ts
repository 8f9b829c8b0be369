import { drawIncidents, drawOverlay, drawPeak } from '../charts/marks';
import { highest, stacked } from '../charts/stacked';
import { TimeChart, stepAt } from '../charts/timechart';
import { commandLine, quoted, rangeOptions, report } from '../command';
import type { Memory, Timeline } from '../document';
import { choice, details, h } from '../dom';
import { moment, plural, size } from '../format';
import type { View } from '../view';
import { Legend, total } from './legend';

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

/** By kind, but by call site if all is of one kind. */
function firstOf(known: string[], areas: (by: string) => number): string {
    return ['kind', 'site', 'owner'].find((by) => known.includes(by) && areas(by) > 1) ?? known[0]!;
}

/** Memory over time by kind, owner or call site. */
export function timeline(view: View): HTMLElement | null {
    const { memory } = view.run;
    const known = Object.keys(NAMES).filter((by) => memory?.timelines[by]?.labels.length);
    if (!memory || known.length === 0) return null;
    const lines = (by: string): Timeline => memory.timelines[by]!;
    let by = firstOf(known, (one) => lines(one).labels.length);
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
