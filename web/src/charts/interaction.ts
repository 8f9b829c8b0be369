import type uPlot from 'uplot';
import type { View } from '../view';

/** Part of the visible time that a key or a turn of the wheel moves. */
const PAN = 0.25;
const ZOOM = 0.7;

/** Keeps a moment visible. */
function reveal(view: View, ns: number): void {
    const [from, to] = view.window;
    const length = to - from;
    if (ns < from) view.setWindow(ns - length * 0.1, ns + length * 0.9);
    if (ns > to) view.setWindow(ns - length * 0.9, ns + length * 0.1);
}

/** Cursor, range, zoom and pan by keys, described in the help of the timeline. */
export function keyboard(element: HTMLElement, view: View): void {
    let anchor: number | null = null;
    const step = (event: KeyboardEvent, by: number): void => {
        const at = view.nearestEdge(view.cursorNs);
        const next = Math.min(view.bins, Math.max(0, by === 0 ? at : at + by));
        if (event.shiftKey) {
            anchor ??= at;
            view.setRange(anchor, next);
        } else {
            anchor = null;
        }
        view.setCursor(view.edges[next] ?? 0);
        reveal(view, view.cursorNs);
    };
    const pan = (by: number): void => {
        const [from, to] = view.window;
        view.setWindow(from + (to - from) * by, to + (to - from) * by);
    };
    const actions: Record<string, (event: KeyboardEvent) => void> = {
        ArrowLeft: (event) => step(event, -1),
        ArrowRight: (event) => step(event, 1),
        Home: (event) => step(event, -view.bins),
        End: (event) => step(event, view.bins),
        PageUp: () => pan(-PAN),
        PageDown: () => pan(PAN),
        '+': () => view.zoom(ZOOM, view.cursorNs),
        '=': () => view.zoom(ZOOM, view.cursorNs),
        '-': () => view.zoom(1 / ZOOM, view.cursorNs),
        '0': () => view.setWindow(view.scale.fromNs, view.scale.toNs),
        p: () => {
            const peak = view.sums?.peakNs;
            if (peak !== null && peak !== undefined) view.setCursor(peak);
            reveal(view, view.cursorNs);
        },
        Escape: () => {
            anchor = null;
            view.setRange(0, view.bins);
        },
    };
    element.addEventListener('keydown', (event) => {
        const action = actions[event.key];
        if (!action || event.ctrlKey || event.altKey || event.metaKey) return;
        event.preventDefault();
        action(event);
    });
}

/** Drag: range. Click: cursor. Wheel: zoom. Drag with shift or the middle button: pan. */
export function mouse(element: HTMLElement, chart: uPlot, view: View): void {
    const { over } = chart;
    const nsAt = (clientX: number): number =>
        chart.posToVal(clientX - over.getBoundingClientRect().left, 'x') * 1e9;
    chart.hooks.setSelect = [
        () => {
            const { left, width } = chart.select;
            if (width < 3) return;
            const edge = (at: number): number => view.nearestEdge(chart.posToVal(at, 'x') * 1e9);
            chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            brushed(view, edge(left), edge(left + width));
        },
    ];
    let pressedAt = 0;
    over.addEventListener('mousedown', (event) => (pressedAt = event.clientX));
    over.addEventListener('click', (event) => {
        element.focus({ preventScroll: true });
        if (Math.abs(event.clientX - pressedAt) < 3) view.setCursor(nsAt(event.clientX));
    });
    over.addEventListener('dblclick', () => view.setWindow(view.scale.fromNs, view.scale.toNs));
    wheel(over, view, nsAt);
    drag(chart.root, over, view);
}

/** A range within one bin is that bin. */
function brushed(view: View, from: number, to: number): void {
    if (from !== to) view.setRange(from, to);
    else view.setRange(from, from < view.bins ? from + 1 : from - 1);
}

function wheel(over: HTMLElement, view: View, nsAt: (clientX: number) => number): void {
    const zoom = (event: WheelEvent): void => {
        const [from, to] = view.window;
        const whole = to - from >= view.scale.toNs - view.scale.fromNs;
        // There is nothing to zoom out of: the page scrolls.
        if (event.deltaY >= 0 && whole && event.deltaX === 0) return;
        event.preventDefault();
        if (event.deltaX !== 0 || event.shiftKey) {
            const by = ((event.deltaX || event.deltaY) / over.clientWidth) * (to - from);
            view.setWindow(from + by, to + by);
        } else {
            view.zoom(event.deltaY < 0 ? ZOOM : 1 / ZOOM, nsAt(event.clientX));
        }
    };
    over.addEventListener('wheel', zoom, { passive: false });
}

function drag(root: HTMLElement, over: HTMLElement, view: View): void {
    root.addEventListener(
        'mousedown',
        (event) => {
            if (!(event.shiftKey || event.button === 1) || !over.contains(event.target as Node)) return;
            event.preventDefault();
            event.stopPropagation();
            const [from, to] = view.window;
            const perPixel = (to - from) / over.clientWidth;
            const move = (moved: MouseEvent): void => {
                const by = (event.clientX - moved.clientX) * perPixel;
                view.setWindow(from + by, to + by);
            };
            const end = (): void => document.removeEventListener('mousemove', move);
            document.addEventListener('mousemove', move);
            document.addEventListener('mouseup', end, { once: true });
        },
        true,
    );
}
