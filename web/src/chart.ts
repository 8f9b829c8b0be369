import uPlot from 'uplot';
import { h } from './dom';
import { shortSize, size } from './format';
import { css, onTheme } from './theme';
import type { View } from './view';

/** A line of steps without dots: a value holds until the next time. */
export const step: Pick<uPlot.Series, 'paths' | 'points'> = {
    paths: uPlot.paths.stepped!({ align: 1 }),
    points: { show: false },
};

export interface ChartOptions {
    view: View;
    name: string;
    label: string;
    height: number;
    top: number;
    unit: 'bytes' | 'percent';
    series: uPlot.Series[];
    /** Times in seconds, and a row for each of the series. */
    data: uPlot.AlignedData;
    draw?: (marks: Marks) => void;
    /** Called with the number of the time that the mouse is at. */
    hover?: (index: number | null) => void;
}

const POWERS = Array.from({ length: 60 }, (_, power) => 2 ** power);

/** A chart over time, in which a range is selected with the mouse. */
export class TimeChart {
    readonly element: HTMLDivElement;
    private chart: uPlot;

    constructor(private readonly options: ChartOptions) {
        const { view, label, name, series, data, height, top } = options;
        const hint = 'drag to select a range, double click for the whole run';
        this.element = h('div', {
            class: 'chart',
            'data-chart': name,
            'data-top': top,
            role: 'img',
            'aria-label': label,
            title: hint,
        });
        this.chart = new uPlot(this.plotOptions(series), data, this.element);
        new ResizeObserver(() => {
            const width = Math.floor(this.element.clientWidth);
            if (width > 0) this.chart.setSize({ width, height });
        }).observe(this.element);
        view.on(() => this.chart.redraw(false));
        onTheme(() => this.chart.redraw(false, true));
    }

    /** Replaces what is drawn. */
    set(series: uPlot.Series[], data: uPlot.AlignedData): void {
        this.chart.destroy();
        this.chart = new uPlot(this.plotOptions(series), data, this.element);
    }

    private plotOptions(series: uPlot.Series[]): uPlot.Options {
        const { view, height, top, unit, draw, hover } = this.options;
        const { fromNs, toNs } = view.scale;
        const axis = (options: uPlot.Axis): uPlot.Axis => ({
            stroke: () => css('muted'),
            font: '12px system-ui, sans-serif',
            grid: { stroke: () => css('line'), width: 1 },
            ticks: { stroke: () => css('line'), width: 1, size: 5 },
            ...options,
        });
        const values = unit === 'bytes' ? shortSize : (share: number): string => `${share} %`;
        return {
            width: Math.max(200, Math.floor(this.element.clientWidth)),
            height,
            legend: { show: false },
            padding: [12, 22, 0, 0],
            scales: {
                x: { time: false, range: () => [fromNs / 1e9, toNs / 1e9] },
                y: { range: () => [0, top || 1] },
            },
            axes: [
                axis({ values: (_, at) => timeLabels(at, toNs - fromNs), space: 90, size: 30 }),
                axis({
                    values: (_, at) => at.map(values),
                    size: 72,
                    incrs: unit === 'bytes' ? POWERS : [5, 10, 20, 25, 50, 100],
                    space: 30,
                }),
            ],
            series: [{}, ...series],
            cursor: {
                y: false,
                points: { show: false },
                drag: { x: true, y: false, setScale: false },
                bind: { dblclick: () => () => (view.setRange(0, view.bins), null) },
            },
            hooks: {
                draw: [(chart) => new Marks(chart, view).draw(draw)],
                setCursor: [(chart) => hover?.(chart.cursor.idx ?? null)],
                setSelect: [(chart) => select(chart, view)],
            },
        };
    }
}

/** Seconds, milliseconds or microseconds, as the visible time needs. */
function timeLabels(splits: number[], spanNs: number): string[] {
    const [factor, unit] = spanNs >= 2e9 ? [1, 's'] : spanNs >= 2e6 ? [1e3, 'ms'] : [1e6, 'us'];
    return splits.map((at) => `${Number((at * factor).toPrecision(10))} ${unit}`);
}

/** Takes over a range; one within a bin is that bin. */
function select(chart: uPlot, view: View): void {
    const { left, width } = chart.select;
    if (width < 3) return;
    const edge = (at: number): number => view.nearestEdge(chart.posToVal(at, 'x') * 1e9);
    const [from, to] = [edge(left), edge(left + width)];
    chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    if (from !== to) view.setRange(from, to);
    else view.setRange(from, from < view.bins ? from + 1 : from - 1);
}

/** What is drawn over a chart. */
export class Marks {
    private readonly ratio = devicePixelRatio;

    constructor(
        private readonly chart: uPlot,
        private readonly view: View,
    ) {}

    draw(more?: (marks: Marks) => void): void {
        const { ctx, bbox } = this.chart;
        ctx.save();
        ctx.beginPath();
        ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
        ctx.clip();
        more?.(this);
        if (!this.view.whole) this.range();
        ctx.restore();
    }

    private x(ns: number): number {
        return this.chart.valToPos(ns / 1e9, 'x', true);
    }

    private y(value: number): number {
        return this.chart.valToPos(value, 'y', true);
    }

    /** Pales the time outside of the range. */
    private range(): void {
        const { ctx, bbox } = this.chart;
        const [from, to] = [this.x(this.view.edges[this.view.from]!), this.x(this.view.edges[this.view.to]!)];
        ctx.fillStyle = css('shade');
        ctx.fillRect(bbox.left, bbox.top, from - bbox.left, bbox.height);
        ctx.fillRect(to, bbox.top, bbox.left + bbox.width - to, bbox.height);
        for (const at of [from, to]) this.vertical(at, css('accent'));
    }

    private vertical(at: number, color: string): void {
        const { bbox } = this.chart;
        this.line(color, [
            [at, bbox.top],
            [at, bbox.top + bbox.height],
        ]);
    }

    private line(color: string, points: [number, number][]): void {
        const { ctx } = this.chart;
        ctx.strokeStyle = color;
        ctx.lineWidth = 1.5 * this.ratio;
        ctx.beginPath();
        for (const point of points) ctx.lineTo(...point);
        ctx.stroke();
    }

    /** A line of values at times of its own. */
    overlay(color: string, points: [number, number][]): void {
        this.line(
            color,
            points.map(([second, bytes]) => [this.x(second * 1e9), this.y(bytes)]),
        );
    }

    peak([ns, bytes]: [number, number]): void {
        const { ctx } = this.chart;
        const [at, top] = [this.x(ns), this.y(bytes)];
        ctx.fillStyle = css('ink');
        ctx.beginPath();
        ctx.arc(at, top, 4 * this.ratio, 0, 2 * Math.PI);
        ctx.fill();
        this.label(`peak ${size(bytes)}`, at, top - 9 * this.ratio, css('ink'));
    }

    /** Refused requests, as red lines; labels only where they do not overlap. */
    incidents(times: number[]): void {
        let free = -Infinity;
        for (const at of times.map((ns) => this.x(ns))) {
            this.vertical(at, css('bad'));
            if (at < free) continue;
            const top = this.chart.bbox.top + 10 * this.ratio;
            free = this.label('out of memory', at, top, css('bad')) + 8 * this.ratio;
        }
    }

    /** Text with an outline, left or right of a point, wherever there is room; returns where it ends. */
    private label(text: string, at: number, top: number, color: string): number {
        const { ctx, bbox } = this.chart;
        ctx.font = `${12 * this.ratio}px system-ui, sans-serif`;
        const width = ctx.measureText(text).width;
        const gap = 9 * this.ratio;
        const start = at + gap + width > bbox.left + bbox.width ? at - gap - width : at + gap;
        ctx.textAlign = 'left';
        ctx.textBaseline = 'middle';
        ctx.lineJoin = 'round';
        ctx.lineWidth = 3 * this.ratio;
        ctx.strokeStyle = css('surface');
        ctx.strokeText(text, start, top);
        ctx.fillStyle = color;
        ctx.fillText(text, start, top);
        return start + width;
    }
}
