import type uPlot from 'uplot';
import { type Areas, type Figures, REST, addFigures, areasOf, highestBin, leftWord } from './bins';
import { TimeChart, step } from './chart';
import type { Held, Memory, Path } from './document';
import { choice, fill, h, swatch } from './dom';
import { moment, size } from './format';
import { COLORS, area, css } from './theme';
import { type View, distinct } from './view';

interface AreaOptions {
    name: string;
    label: string;
    height: number;
    top: number;
    /** Ways to group; the first that has several groups is shown. */
    by: [string, (path: Path) => string | null][];
    /** The most that was reserved within each bin. */
    reserved?: number[];
    incidents?: Memory['incidents'];
    overlay?: Memory['overlay'];
}

/** Numbers of the colours of labels: those that they have in the other run, and others that are free here. */
export function colorsOf(view: View, way: string, labels: string[]): Map<string, number> {
    const known = view.scale.colors.get(way) ?? new Map<string, number>();
    view.scale.colors.set(way, known);
    const own = new Map(labels.flatMap((label) => (known.has(label) ? [[label, known.get(label)!]] : [])));
    let free = 0;
    for (const label of labels) {
        if (own.has(label)) continue;
        while ([...own.values()].includes(free)) free += 1;
        // The rest has no colour of its own.
        own.set(label, label === REST ? COLORS : free);
    }
    for (const [label, color] of own) known.set(label, color);
    return own;
}

/** The areas on top of each other: their sums, the highest first so that none is hidden. */
function stacked(
    { labels, times_ns, values }: Areas,
    colors: Map<string, number>,
    reserved: number[],
): [uPlot.Series[], uPlot.AlignedData] {
    const series: uPlot.Series[] = [];
    const rows: number[][] = [];
    let sum = times_ns.map(() => 0);
    labels.forEach((label, index) => {
        sum = sum.map((below, at) => below + values[index]![at]!);
        rows.unshift(sum);
        const color = area(colors.get(label)!);
        series.unshift({ fill: color, stroke: color, width: 1, ...step });
    });
    if (reserved.length > 0) {
        rows.push(reserved);
        series.push({ stroke: () => css('ink'), width: 1.6, ...step });
    }
    return [series, [times_ns.map((ns) => ns / 1e9), ...rows]];
}

/** Memory over time as stacked areas, with their values at the mouse, at the peak and at the end of the range. */
export function areaChart(view: View, held: Held, options: AreaOptions): HTMLElement {
    const { name, by, reserved = [], incidents = [], overlay = [] } = options;
    const flat = reserved.length > 0 ? [0, ...reserved.flatMap((bytes) => [bytes, bytes])] : [];
    const ways = by.map(([, labelOf]) => areasOf(held, view.edges, labelOf, COLORS));
    const colors = by.map(([way], at) => colorsOf(view, `${name} ${way}`, ways[at]!.labels));
    let way = ways.findIndex(({ labels }) => labels.length > 1);
    if (way < 0) way = 0;
    const legend = h('table', { class: 'legend', 'data-table': name });
    const top = (): number => highestBin(held, view.from, view.to);
    const draw = (hovered: number | null): void => {
        const { labels, values, times_ns } = ways[way]!;
        const [title, labelOf] = by[way]!;
        const total = view.sumsOf(held);
        const time = hovered === null ? '' : moment(times_ns[hovered]!, view.span);
        const heads = [`By ${title}`, time, 'Peak', leftWord(total)];
        const row = (label: string, fill: string, figures: (number | null)[]): HTMLElement => {
            const keys = ['now', 'peak', 'end'];
            const cells = figures.map((bytes, index) =>
                h('td', { 'data-key': keys[index]!, 'data-value': bytes }, bytes === null ? '' : size(bytes)),
            );
            const [name, rest] = distinct(label, labels);
            const key = h('th', { scope: 'row' }, swatch(fill, name, label), rest && h('small', {}, rest));
            return h('tr', { 'data-id': label }, key, ...cells);
        };
        const sums = (label: string, fill: string, areas: number[][], { peak, never_freed }: Figures) => {
            const now = areas.reduce((sum, points) => sum + points[hovered ?? 0]!, 0);
            return row(label, fill, [hovered === null ? null : now, peak[0], never_freed[0]]);
        };
        const named = held.paths.map((path) => {
            const label = labelOf(path);
            return label === null || labels.includes(label) ? label : REST;
        });
        const areas = labels.map((label, index) => {
            const own = view.figuresOf(held).filter((_, at) => named[at] === label);
            return sums(label, area(colors[way]!.get(label)!), [values[index]!], addFigures(own));
        });
        const lines = overlay.map(({ label, points }, index) => {
            const bytes = points.map(([, bytes]) => bytes);
            const highest = bytes.reduce((most, one) => Math.max(most, one), 0);
            return row(label, `var(--overlay-${index % 4})`, [null, highest, bytes.at(-1) ?? null]);
        });
        if (flat.length > 0) {
            // After the first point, each bin has one at its highest total and one at its end.
            const at = [hovered, 1 + 2 * top(), 2 * view.to];
            const figures = at.map((one) => (one === null ? null : flat[one]!));
            lines.unshift(row('reserved', 'var(--ink)', figures));
        }
        fill(
            legend,
            h('thead', {}, h('tr', {}, ...heads.map((text) => h('th', { scope: 'col' }, text)))),
            h('tbody', {}, ...areas.reverse(), sums('total', 'transparent', values, total), ...lines),
        );
    };
    const [series, data] = stacked(ways[way]!, colors[way]!, flat);
    const chart = new TimeChart({
        ...options,
        view,
        unit: 'bytes',
        series,
        data,
        hover: draw,
        draw: (marks) => {
            overlay.forEach(({ points }, index) => marks.overlay(css(`overlay-${index % 4}`), points));
            marks.incidents(incidents.map(({ time_ns }) => time_ns));
            marks.peak(held.bins[top()]!);
        },
    });
    view.on(() => draw(null));
    const names = by.map(([name], index): [string, string] => [String(index), name]);
    const grouping = choice('Grouped by', names, String(way), (index) => {
        way = Number(index);
        chart.set(...stacked(ways[way]!, colors[way]!, flat));
        draw(null);
    });
    return h(
        'div',
        {},
        by.length > 1 && h('div', { class: 'tools' }, grouping),
        h('div', { class: 'timeline' }, chart.element, h('div', {}, legend)),
    );
}
