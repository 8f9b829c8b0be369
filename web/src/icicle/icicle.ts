import type { Memory } from '../document';
import { details, fill, h } from '../dom';
import { plural, share, size } from '../format';
import { onTheme } from '../theme';
import type { View } from '../view';
import { type Box, ROW, draw, layout } from './draw';
import { StackTree } from './tree';

const KEYS = 'Arrow keys move between call frames, Enter zooms into one, Escape zooms out, Home shows all.';

/** Call stacks as an icicle: the outermost frame on top, the width is the share. */
export class Icicle {
    readonly element: HTMLElement;
    private readonly canvas = h('canvas', {
        class: 'icicle',
        tabindex: 0,
        role: 'application',
        'aria-label': 'call stacks as an icicle graph',
    });
    private readonly box = h('div', { class: 'icicle-scroll' }, this.canvas);
    private readonly said = h('p', { class: 'said', role: 'status' });
    private readonly figures = h('tbody');
    private readonly tree: StackTree;
    private boxes: Box[] = [];
    private focus = 0;
    private selected = 0;
    private query = '';

    constructor(
        private readonly view: View,
        private readonly memory: Memory,
    ) {
        this.tree = new StackTree(view, memory);
        this.canvas.setAttribute('aria-description', KEYS);
        const heads = ['Frame', 'Value', 'Share'].map((text) => h('th', { scope: 'col' }, text));
        const table = h(
            'table',
            { 'data-table': 'icicle' },
            h('caption', {}, 'The frame that is zoomed into, and what it calls'),
            h('thead', {}, h('tr', {}, ...heads)),
            this.figures,
        );
        const open = details('figures of the chart', table);
        this.element = h('div', { class: 'icicle-box' }, this.searchBox(), this.box, this.said, open);
        this.listen();
        view.on(['range', 'measure'], () => this.update());
        onTheme(() => this.draw());
        new ResizeObserver(() => this.draw()).observe(this.canvas);
    }

    private searchBox(): HTMLElement {
        const input = h('input', {
            type: 'search',
            placeholder: 'function, file or module',
            oninput: () => {
                this.query = input.value;
                this.draw();
            },
        });
        const matched = h('output', { class: 'matched', 'data-matched': '' });
        const legend = (['python', 'native', 'api'] as const).map((type) => {
            const text = { python: 'Python', native: 'native', api: 'allocating function' }[type];
            return h('span', { class: `key ${type}` }, text);
        });
        const keys = h('span', { class: 'keys' }, ...legend);
        return h('div', { class: 'tools' }, h('label', { class: 'search' }, 'Search ', input), matched, keys);
    }

    private listen(): void {
        const { canvas } = this;
        canvas.addEventListener('mousemove', (event) => this.say(this.at(event) ?? this.selected));
        canvas.addEventListener('focus', () => this.draw());
        canvas.addEventListener('blur', () => this.draw());
        canvas.addEventListener('mouseleave', () => this.say(this.selected));
        canvas.addEventListener('click', (event) => {
            const node = this.at(event);
            if (node !== null) this.zoom(node);
        });
        canvas.addEventListener('keydown', (event) => {
            const action = this.keys()[event.key];
            if (!action || event.ctrlKey || event.altKey || event.metaKey) return;
            event.preventDefault();
            action();
        });
    }

    private keys(): Record<string, () => void> {
        const beside = (by: number): number | undefined => {
            const siblings = this.tree.heaviest(this.tree.parent[this.selected] ?? -1);
            return siblings[siblings.indexOf(this.selected) + by];
        };
        return {
            ArrowDown: () => this.select(this.tree.heaviest(this.selected)[0]),
            ArrowUp: () => this.select(this.tree.parent[this.selected]),
            ArrowLeft: () => this.select(this.selected > 0 ? beside(-1) : undefined),
            ArrowRight: () => this.select(this.selected > 0 ? beside(1) : undefined),
            Enter: () => this.zoom(this.selected),
            Escape: () => this.zoom(Math.max(0, this.tree.parent[this.focus]!)),
            Home: () => this.zoom(0),
        };
    }

    private at(event: MouseEvent): number | null {
        const row = Math.floor(event.offsetY / ROW);
        const x = event.offsetX;
        const box = this.boxes.find((one) => one.row === row && x >= one.x && x < one.x + one.width);
        return box ? box.node : null;
    }

    private select(node: number | undefined): void {
        if (node === undefined || node < 0) return;
        this.selected = node;
        // What cannot be seen is zoomed to.
        if (!this.boxes.some((box) => box.node === node)) this.focus = this.tree.parent[node] ?? 0;
        this.draw();
        this.reveal();
    }

    /** Scrolls to the frame that is selected. */
    private reveal(): void {
        const { box } = this;
        const top = this.tree.depth[this.selected]! * ROW;
        if (top < box.scrollTop) box.scrollTop = top;
        if (top + 2 * ROW > box.scrollTop + box.clientHeight)
            box.scrollTop = top + 2 * ROW - box.clientHeight;
    }

    private zoom(node: number): void {
        this.focus = this.selected = node;
        this.draw();
    }

    /** Takes over the range and the measure that are looked at. */
    private update(): void {
        const { view, memory } = this;
        const weights = view.sums![view.measure][view.weight];
        this.tree.weigh(weights, (stack) => view.host || !memory.stacks[stack]!.host);
        if (this.tree.values[this.focus] === 0) this.focus = this.selected = 0;
        this.draw();
    }

    private draw(): void {
        const { tree } = this;
        this.boxes = layout(tree, this.focus, Math.max(1, this.canvas.clientWidth));
        const { matches, value } = tree.search(this.query);
        const matched = this.element?.querySelector<HTMLOutputElement>('.matched');
        if (matched) {
            const all = tree.values[0]!;
            matched.dataset.matched = String(this.query.trim() ? value : '');
            fill(matched, this.query.trim() ? `${this.text(value)}, ${share(value, all) || '0.0 %'}` : '');
        }
        const marks = this.query.trim() ? matches : null;
        draw(this.canvas, tree, this.boxes, {
            matches: marks,
            selected: document.activeElement === this.canvas ? this.selected : -1,
        });
        this.say(this.selected);
        this.showFigures();
    }

    private text(value: number): string {
        return this.view.weight === 'bytes' ? size(value) : plural(value, 'allocation');
    }

    private say(node: number): void {
        const { tree } = this;
        const value = tree.values[node]!;
        const of = share(value, tree.values[0]!);
        const place = tree.place(node);
        fill(
            this.said,
            h('strong', {}, tree.name(node)),
            ` ${this.text(value)}${of ? `, ${of}` : ''}`,
            place ? h('span', { class: 'place' }, ` ${place}`) : null,
        );
    }

    private showFigures(): void {
        const { tree } = this;
        const nodes = [this.focus, ...tree.heaviest(this.focus).slice(0, 100)];
        const rows = nodes.map((node) => {
            const value = tree.values[node]!;
            return h(
                'tr',
                { 'data-id': node },
                h('th', { scope: 'row' }, tree.name(node)),
                h('td', { 'data-key': 'value', 'data-value': value }, this.text(value)),
                h('td', {}, share(value, tree.values[0]!)),
            );
        });
        fill(this.figures, ...rows);
    }
}
