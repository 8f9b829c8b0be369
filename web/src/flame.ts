import flamegraph from 'd3-flame-graph';
import { select } from 'd3-selection';
import type { Held, Path } from './document';
import { fill, h } from './dom';
import { printable, share } from './format';
import { type View, framePlace, frameText } from './view';

interface Node {
    name: string;
    place: string;
    type: 'root' | 'process' | 'python' | 'native' | 'api';
    value: number;
    children: Node[];
    byKey: Map<string | number, Node>;
}

function child(parent: Node, key: string | number, type: Node['type'], make: () => [string, string]): Node {
    let node = parent.byKey.get(key);
    if (!node) {
        const [name, place] = make().map(printable) as [string, string];
        node = { name, place, type, value: 0, children: [], byKey: new Map() };
        parent.byKey.set(key, node);
        parent.children.push(node);
    }
    return node;
}

/** Call paths as one tree, from the process to the function called, with the sums of what each has. */
function treeOf(view: View, paths: Path[], weights: number[]): Node {
    const root: Node = { name: 'all', place: '', type: 'root', value: 0, children: [], byKey: new Map() };
    paths.forEach(({ pid, stack, function: api }, index) => {
        const weight = weights[index]!;
        if (weight <= 0) return;
        const nodes = [root, child(root, `p${pid}`, 'process', () => [view.process(pid), ''])];
        for (let at = stack.length - 1; at >= 0; at -= 1) {
            const frame = view.frame(stack[at]!);
            const type = frame[4] ? 'python' : 'native';
            nodes.push(child(nodes.at(-1)!, stack[at]!, type, () => [frameText(frame), framePlace(frame)]));
        }
        if (api) nodes.push(child(nodes.at(-1)!, api, 'api', () => [api, '']));
        for (const node of nodes) node.value += weight;
    });
    return root;
}

const matches = ({ name, place }: Node, term: string): boolean =>
    `${name} ${place}`.toLowerCase().includes(term);

/** The value of the frames that match, with all that they call. */
const foundIn = ({ children }: Node, term: string): number =>
    children.reduce((sum, one) => sum + (matches(one, term) ? one.value : foundIn(one, term)), 0);

/** Of the whole, a frame has at least one part in so many. */
const LEAST = 10_000;

/** Call paths of memory as a flame graph, the outermost frame on top. */
export class Flame {
    private readonly box = h('div', { class: 'flame' });
    private readonly details = h('p', { class: 'details' });
    private readonly found = h('output');
    private readonly search = h('input', {
        type: 'search',
        placeholder: 'function, file or module',
        oninput: () => this.mark(),
    });
    private tree: Node | null = null;
    private total = 0;
    private text: (value: number) => string = String;
    private readonly chart = flamegraph<Node>()
        .cellHeight(18)
        .minFrameSize(2)
        // What is below that is not seen, and drawing it takes seconds.
        .getChildren(({ children }) => children.filter(({ value }) => value * LEAST >= this.total))
        .transitionDuration(0)
        .inverted(true)
        .resetHeightOnZoom(true)
        .sort((a, b) => b.data.value - a.data.value)
        .color(({ data, highlight }) => `var(--${highlight ? 'match' : data.type})`)
        .label(({ data }) => this.say(data))
        .details(this.details)
        .setSearchMatch(({ data }, term) => matches(data, term))
        .setSearchHandler(() => {});
    readonly element = h(
        'div',
        {},
        h('div', { class: 'tools' }, h('label', {}, 'Search ', this.search), this.found),
        this.box,
        this.details,
    );

    constructor(
        private readonly view: View,
        private readonly held: Held,
    ) {
        new ResizeObserver(() => {
            if (this.total > 0) this.chart.width(this.box.clientWidth).update();
        }).observe(this.box);
    }

    /** Shows what each call path has, in bytes or allocations. */
    show(weights: number[], text: (value: number) => string): void {
        const tree = treeOf(this.view, this.held.paths, weights);
        [this.tree, this.text, this.total] = [tree, text, tree.value];
        this.box.replaceChildren();
        if (this.total === 0) fill(this.box, 'nothing in this range');
        else
            select(this.box)
                .datum(tree)
                .call(this.chart.width(this.box.clientWidth || 960));
        if (this.search.value) this.mark();
    }

    private say({ name, place, value }: Node): string {
        return `${name}: ${this.text(value)}, ${share(value, this.total)}${place ? `, ${place}` : ''}`;
    }

    private mark(): void {
        const term = this.search.value.trim().toLowerCase();
        const sum = term && this.tree ? foundIn(this.tree, term) : 0;
        fill(this.found, term && `${this.text(sum)}, ${share(sum, this.total)}`);
        this.found.dataset.matched = String(sum);
        if (this.total === 0) return;
        if (term) this.chart.search(term);
        else this.chart.clear();
    }
}
