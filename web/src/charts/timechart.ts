import uPlot from 'uplot';
import { h } from '../dom';
import { moment, shortSize } from '../format';
import { colors, onTheme } from '../theme';
import type { View } from '../view';
import { drawCursor, drawRange } from './marks';
import { keyboard, mouse } from './interaction';

export interface TimeChartOptions {
    view: View;
    name: string;
    label: string;
    height: number;
    series: uPlot.Series[];
    data: uPlot.AlignedData;
    top: number;
    /** Sizes in bytes, or shares in per cent. */
    unit: 'bytes' | 'percent';
    /** Text of the values at a moment, for screen readers. */
    valueText: (ns: number) => string;
    draw?: (chart: uPlot) => void;
    hover?: (ns: number | null) => void;
}

const POWERS = Array.from({ length: 60 }, (_, power) => 2 ** power);

/** Seconds, milliseconds or microseconds, as the visible time needs. */
function timeUnit(span: number): [number, string] {
    if (span >= 2) return [1, 's'];
    return span >= 2e-3 ? [1e3, 'ms'] : [1e6, 'us'];
}

function timeLabels(chart: uPlot, splits: number[]): string[] {
    const { min, max } = chart.scales.x!;
    const [factor, unit] = timeUnit((max ?? 0) - (min ?? 0));
    return splits.map((at) => `${Number((at * factor).toPrecision(10))} ${unit}`);
}

/** Shared looks of the axes of all charts. */
export const axis = (options: uPlot.Axis): uPlot.Axis => ({
    stroke: () => colors().muted,
    font: '12px system-ui, sans-serif',
    grid: { stroke: () => colors().line, width: 1 },
    ticks: { stroke: () => colors().line, width: 1, size: 5 },
    ...options,
});

function axes(unit: TimeChartOptions['unit']): uPlot.Axis[] {
    const values =
        unit === 'bytes'
            ? (_: uPlot, splits: number[]) => splits.map((at) => shortSize(at))
            : (_: uPlot, splits: number[]) => splits.map((at) => `${at} %`);
    return [
        axis({ values: timeLabels, space: 90, size: 30 }),
        axis({
            values,
            size: 72,
            incrs: unit === 'bytes' ? POWERS : [5, 10, 20, 25, 50, 100],
            space: unit === 'bytes' ? 34 : 26,
        }),
    ];
}

/** A chart over time: zoom, pan, cursor and range are those of the view, by mouse and keyboard. */
export class TimeChart {
    readonly element: HTMLDivElement;
    private chart: uPlot;

    constructor(private readonly options: TimeChartOptions) {
        const { view, label, name } = options;
        this.element = h('div', {
            class: 'chart',
            'data-chart': name,
            tabindex: 0,
            role: 'slider',
            'aria-label': label,
            'aria-valuemin': view.startNs / 1e9,
            'aria-valuemax': view.endNs / 1e9,
            'data-top': options.top,
        });
        this.chart = this.build(options.series, options.data);
        keyboard(this.element, view);
        new ResizeObserver(() => this.fit()).observe(this.element);
        view.on(['window'], () => this.showWindow());
        view.on(['range', 'cursor'], () => this.showCursor());
        onTheme(() => this.chart.redraw(false, true));
    }

    /** Replaces what is drawn. */
    setSeries(series: uPlot.Series[], data: uPlot.AlignedData): void {
        this.chart.destroy();
        this.chart = this.build(series, data);
        this.fit();
        this.showWindow();
    }

    private build(series: uPlot.Series[], data: uPlot.AlignedData): uPlot {
        const chart = new uPlot(this.plotOptions(series), data, this.element);
        mouse(this.element, chart, this.options.view);
        return chart;
    }

    private plotOptions(series: uPlot.Series[]): uPlot.Options {
        const { options } = this;
        const { view } = options;
        return {
            width: 600,
            height: options.height,
            legend: { show: false },
            padding: [12, 22, 0, 0],
            scales: {
                x: { time: false, range: () => [view.window[0] / 1e9, view.window[1] / 1e9] },
                y: { range: () => [0, options.top || 1] },
            },
            axes: axes(options.unit),
            series: [{}, ...series],
            cursor: {
                y: false,
                points: { show: false },
                drag: { x: true, y: false, setScale: false },
            },
            hooks: {
                draw: [
                    (chart) => {
                        options.draw?.(chart);
                        drawRange(chart, view);
                        drawCursor(chart, view);
                    },
                ],
                setCursor: [
                    (chart) => {
                        const { left } = chart.cursor;
                        const inside = left !== undefined && left >= 0;
                        options.hover?.(inside ? chart.posToVal(left, 'x') * 1e9 : null);
                    },
                ],
            },
        };
    }

    private fit(): void {
        const width = Math.floor(this.element.clientWidth);
        if (width > 0) this.chart.setSize({ width, height: this.options.height });
    }

    private showWindow(): void {
        const [from, to] = this.options.view.window;
        this.element.dataset.window = `${from} ${to}`;
        this.chart.setScale('x', { min: from / 1e9, max: to / 1e9 });
    }

    private showCursor(): void {
        const { view, valueText } = this.options;
        const ns = view.cursorNs;
        const said = `${moment(ns, view.endNs - view.startNs)}: ${valueText(ns)}`;
        this.element.setAttribute('aria-valuenow', String(ns / 1e9));
        this.element.setAttribute('aria-valuetext', said);
        this.chart.redraw(false, false);
    }
}

/** The number of the last time that is not after `ns`; -1 before the first. */
export function stepAt(times: number[], ns: number): number {
    let low = 0;
    let high = times.length;
    while (low < high) {
        const middle = (low + high) >> 1;
        if (times[middle]! <= ns) low = middle + 1;
        else high = middle;
    }
    return low - 1;
}
