import type { Memory } from '../document';
import { type View, frameText, framePlace } from '../view';

export type NodeType = 'root' | 'process' | 'python' | 'native' | 'api';

/** Call stacks of all processes as one tree, from the outermost frame to the function called. */
export class StackTree {
    /** Parent of each node; a node comes after its parent. */
    readonly parent: number[] = [-1];
    readonly depth: number[] = [0];
    readonly children: number[][] = [[]];
    /** Frame number, or for other types a number into `names`. */
    private readonly key: number[] = [0];
    private readonly types: NodeType[] = ['root'];
    private readonly names: string[] = ['all call sites'];
    /** Node of the allocating function of each stack. */
    private readonly leaf: Int32Array;
    values: Float64Array = new Float64Array(1);

    constructor(
        private readonly view: View,
        memory: Memory,
    ) {
        const known = new Map<string, number>();
        const childOf = (parent: number, id: string, type: NodeType, key: () => number): number => {
            const path = `${parent} ${id}`;
            const found = known.get(path);
            if (found !== undefined) return found;
            const node = this.append(parent, type, key());
            known.set(path, node);
            return node;
        };
        const named = (name: string) => (): number => this.names.push(name) - 1;
        this.leaf = Int32Array.from(memory.stacks, (one) => {
            let node = childOf(0, `p${one.pid}`, 'process', named(view.process(one.pid)));
            for (let at = one.stack.length - 1; at >= 0; at -= 1) {
                const frame = one.stack[at]!;
                const type = view.frame(frame)[4] ? 'python' : 'native';
                node = childOf(node, `f${frame}`, type, () => frame);
            }
            return childOf(node, `a${one.function}`, 'api', named(one.function));
        });
        this.values = new Float64Array(this.parent.length);
    }

    private append(parent: number, type: NodeType, key: number): number {
        const node = this.parent.push(parent) - 1;
        this.depth.push(this.depth[parent]! + 1);
        this.types.push(type);
        this.key.push(key);
        this.children.push([]);
        this.children[parent]!.push(node);
        return node;
    }

    /** Gives each node the sum of what `weights` has for the stacks below it. */
    weigh(weights: Float64Array, takes: (stack: number) => boolean): void {
        this.values.fill(0);
        this.leaf.forEach((node, stack) => {
            if (takes(stack)) this.values[node]! += Math.max(0, weights[stack]!);
        });
        for (let node = this.parent.length - 1; node > 0; node -= 1) {
            this.values[this.parent[node]!]! += this.values[node]!;
        }
    }

    type(node: number): NodeType {
        return this.types[node]!;
    }

    name(node: number): string {
        const key = this.key[node]!;
        return this.isFrame(node) ? frameText(this.view.frame(key)) : this.names[key]!;
    }

    /** File or module of a frame. */
    place(node: number): string {
        return this.isFrame(node) ? framePlace(this.view.frame(this.key[node]!)) : '';
    }

    private isFrame(node: number): boolean {
        return this.types[node] === 'python' || this.types[node] === 'native';
    }

    /** Children that have a value, the largest first. */
    heaviest(node: number): number[] {
        const children = this.children[node]!.filter((one) => this.values[one]! > 0);
        return children.sort((a, b) => this.values[b]! - this.values[a]! || a - b);
    }

    /** Nodes that match, and the sum of those that are below no other match. */
    search(text: string): { matches: Uint8Array; value: number } {
        const matches = new Uint8Array(this.parent.length);
        const wanted = text.trim().toLowerCase();
        if (!wanted) return { matches, value: 0 };
        const below = new Uint8Array(this.parent.length);
        const frames = new Map<number, boolean>();
        const matched = (node: number): boolean => {
            const test = (): boolean =>
                `${this.name(node)} ${this.place(node)}`.toLowerCase().includes(wanted);
            if (!this.isFrame(node)) return node > 0 && test();
            const key = this.key[node]!;
            if (!frames.has(key)) frames.set(key, test());
            return frames.get(key)!;
        };
        let value = 0;
        for (let node = 1; node < this.parent.length; node += 1) {
            const parent = this.parent[node]!;
            below[node] = below[parent]! | matches[parent]!;
            if (!matched(node)) continue;
            matches[node] = 1;
            if (!below[node]) value += this.values[node]!;
        }
        return { matches, value };
    }
}
