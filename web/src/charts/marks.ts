import type uPlot from 'uplot';
import type { Memory } from '../document';
import { size } from '../format';
import { colors, overlayLine } from '../theme';
import type { View } from '../view';

const FONT = 'system-ui, sans-serif';
const x = (chart: uPlot, ns: number): number => chart.valToPos(ns / 1e9, 'x', true);
const y = (chart: uPlot, value: number): number => chart.valToPos(value, 'y', true);

/** Draws within the plotting area. */
function clipped(chart: uPlot, draw: (ctx: CanvasRenderingContext2D, ratio: number) => void): void {
    const { ctx, bbox } = chart;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    draw(ctx, devicePixelRatio);
    ctx.restore();
}

function vertical(chart: uPlot, at: number): void {
    const { ctx, bbox } = chart;
    ctx.beginPath();
    ctx.moveTo(at, bbox.top);
    ctx.lineTo(at, bbox.top + bbox.height);
    ctx.stroke();
}

/** Pales the time outside of the range. */
export function drawRange(chart: uPlot, view: View): void {
    if (view.whole) return;
    clipped(chart, (ctx, ratio) => {
        const { left, top, width, height } = chart.bbox;
        const [from, to] = [x(chart, view.edges[view.from]!), x(chart, view.edges[view.to]!)];
        ctx.fillStyle = colors().shade;
        ctx.fillRect(left, top, Math.max(0, from - left), height);
        ctx.fillRect(to, top, Math.max(0, left + width - to), height);
        ctx.strokeStyle = colors().accent;
        ctx.lineWidth = ratio;
        vertical(chart, from);
        vertical(chart, to);
    });
}

/** The time that the list of allocations is of. */
export function drawCursor(chart: uPlot, view: View): void {
    clipped(chart, (ctx, ratio) => {
        const at = x(chart, view.cursorNs);
        ctx.strokeStyle = ctx.fillStyle = colors().accent;
        ctx.lineWidth = 1.5 * ratio;
        ctx.setLineDash([4 * ratio, 3 * ratio]);
        vertical(chart, at);
        const half = 5 * ratio;
        ctx.beginPath();
        ctx.moveTo(at - half, chart.bbox.top);
        ctx.lineTo(at + half, chart.bbox.top);
        ctx.lineTo(at, chart.bbox.top + 1.6 * half);
        ctx.fill();
    });
}

/** Text with an outline of the background, left or right of a point, wherever there is room. */
function label(chart: uPlot, text: string, at: number, top: number, color: string): number {
    const { ctx, bbox } = chart;
    const ratio = devicePixelRatio;
    ctx.font = `${12 * ratio}px ${FONT}`;
    const width = ctx.measureText(text).width;
    const gap = 9 * ratio;
    const start = at + gap + width > bbox.left + bbox.width ? at - gap - width : at + gap;
    ctx.textAlign = 'left';
    ctx.textBaseline = 'middle';
    ctx.lineJoin = 'round';
    ctx.lineWidth = 3 * ratio;
    ctx.strokeStyle = colors().surface;
    ctx.strokeText(text, start, top);
    ctx.fillStyle = color;
    ctx.fillText(text, start, top);
    return start + width;
}

export function drawPeak(chart: uPlot, peak: NonNullable<Memory['peak']>): void {
    const at = x(chart, peak.time_ns);
    const { left, width } = chart.bbox;
    if (at < left || at > left + width) return;
    const { ctx } = chart;
    const top = y(chart, peak.bytes);
    ctx.save();
    ctx.fillStyle = colors().ink;
    ctx.strokeStyle = colors().surface;
    ctx.lineWidth = 1.5 * devicePixelRatio;
    ctx.beginPath();
    ctx.arc(at, top, 4 * devicePixelRatio, 0, 2 * Math.PI);
    ctx.fill();
    ctx.stroke();
    label(chart, `peak ${size(peak.bytes)}`, at, top - 9 * devicePixelRatio, colors().ink);
    ctx.restore();
}

/** Requests that were refused, as red lines; labels only where they do not overlap. */
export function drawIncidents(chart: uPlot, incidents: Memory['incidents']): void {
    const { ctx, bbox } = chart;
    let free = -Infinity;
    ctx.save();
    for (const one of incidents) {
        const at = x(chart, one.time_ns);
        if (at < bbox.left || at > bbox.left + bbox.width) continue;
        ctx.strokeStyle = colors().bad;
        ctx.lineWidth = 1.5 * devicePixelRatio;
        ctx.setLineDash([]);
        vertical(chart, at);
        if (at < free) continue;
        const top = bbox.top + 10 * devicePixelRatio;
        free = label(chart, 'out of memory', at, top, colors().bad) + 8 * devicePixelRatio;
    }
    ctx.restore();
}

/** Memory as nvidia-smi showed it, as lines. */
export function drawOverlay(chart: uPlot, overlay: Memory['overlay']): void {
    clipped(chart, (ctx, ratio) => {
        overlay.forEach(({ points }, index) => {
            ctx.strokeStyle = overlayLine(index);
            ctx.lineWidth = 1.6 * ratio;
            ctx.setLineDash(index % 2 ? [6 * ratio, 3 * ratio] : []);
            ctx.beginPath();
            for (const [second, bytes] of points) ctx.lineTo(x(chart, second * 1e9), y(chart, bytes));
            ctx.stroke();
        });
    });
}
