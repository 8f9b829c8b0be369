import uPlot from 'uplot';
import { details, fill, h } from '../dom';
import { count } from '../format';
import { colors, onTheme } from '../theme';
import { axis } from './timechart';

/** Buckets that are shown: a few at least, so that one bar does not look like many. */
const LEAST = 8;

function extent(first: number, last: number): [number, number] {
    const missing = Math.max(0, LEAST - (last - first + 1));
    const before = Math.min(first, Math.floor(missing / 2));
    return [first - before, last + missing - before];
}

/** Bars of counts by power of two, with the same figures as a table. */
export class Histogram {
    readonly element: HTMLElement;
    private readonly title = h('h4');
    private readonly full = h('p', { class: 'note full' });
    private readonly plot: HTMLElement;
    private readonly figures = h('tbody');
    private chart: uPlot | null = null;

    constructor(
        private readonly name: string,
        heading: string,
        private readonly text: (value: number) => string,
    ) {
        this.plot = h('div', { class: 'chart', role: 'img' });
        const head = h('tr', {}, h('th', { scope: 'col' }, heading), h('th', { scope: 'col' }, 'Count'));
        const table = h('table', { 'data-table': name }, h('thead', {}, head), this.figures);
        const open = details('figures of the chart', table);
        this.element = h('div', { class: 'histogram' }, this.title, this.full, this.plot, open);
        new ResizeObserver(() => this.fit()).observe(this.plot);
        onTheme(() => this.chart?.redraw(false));
    }

    /** Shows counts by bucket; `full` is the whole name where the title is a short one. */
    show(title: string, counts: Map<number, number>, full = title): void {
        fill(this.title, h('span', { class: 'elided', title: full }, title));
        fill(this.full, full === title ? '' : full);
        this.plot.setAttribute('aria-label', `${this.name} of ${title}`);
        const known = [...counts.keys()].sort((a, b) => a - b);
        this.element.hidden = known.length === 0;
        if (known.length === 0) return;
        this.showFigures(known, counts);
        const [first, last] = extent(known[0]!, known[known.length - 1]!);
        const buckets = Array.from({ length: last - first + 1 }, (_, at) => first + at);
        const data = [buckets, buckets.map((bucket) => counts.get(bucket) ?? 0)] as uPlot.AlignedData;
        this.chart?.destroy();
        this.chart = new uPlot(this.plotOptions(first, last), data, this.plot);
    }

    private showFigures(known: number[], counts: Map<number, number>): void {
        const rows = known.map((bucket) => {
            const range = `${this.text(2 ** bucket)} to ${this.text(2 ** (bucket + 1))}`;
            const runs = counts.get(bucket)!;
            const cell = h('td', { 'data-key': 'count', 'data-value': runs }, count(runs));
            return h('tr', { 'data-id': bucket }, h('th', { scope: 'row' }, range), cell);
        });
        fill(this.figures, ...rows);
    }

    private plotOptions(first: number, last: number): uPlot.Options {
        return {
            width: Math.max(200, Math.floor(this.plot.clientWidth)),
            height: 190,
            legend: { show: false },
            cursor: { show: false },
            padding: [10, 30, 0, 0],
            // A bar is from its bucket's lower edge to the next.
            scales: {
                x: { time: false, range: [first - 0.2, last + 1.2] },
                y: { range: (_, __, max) => [0, max * 1.08 || 1] },
            },
            axes: [
                axis({
                    values: (_, splits) => splits.map((at) => this.text(2 ** at)),
                    incrs: [1, 2, 4, 8],
                    space: 62,
                    size: 30,
                    grid: { show: false },
                }),
                axis({
                    size: 64,
                    space: 34,
                    values: (_, splits) => splits.map((at) => (at % 1 ? '' : count(at))),
                }),
            ],
            series: [
                {},
                {
                    fill: () => colors().accent,
                    stroke: () => colors().accent,
                    width: 0,
                    points: { show: false },
                    paths: uPlot.paths.bars!({ size: [0.92, Infinity], align: 1 }),
                },
            ],
        };
    }

    private fit(): void {
        const width = Math.floor(this.plot.clientWidth);
        if (width > 0) this.chart?.setSize({ width, height: 190 });
    }
}
