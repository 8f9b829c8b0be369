import { printable } from '../format';
import { colors, hsl } from '../theme';
import type { NodeType, StackTree } from './tree';

export const ROW = 18;
/** Rows below the frame that is zoomed into; deeper ones are seen by zooming. */
export const DEEPEST = 200;

export interface Box {
    node: number;
    row: number;
    x: number;
    width: number;
}

/** Boxes that are wide enough to be seen: the way to `focus` over the whole width, then its parts. */
export function layout(tree: StackTree, focus: number, width: number): Box[] {
    const boxes: Box[] = [];
    for (let node = focus; node >= 0; node = tree.parent[node]!) {
        boxes.unshift({ node, row: tree.depth[node]!, x: 0, width });
    }
    const total = tree.values[focus]!;
    if (total <= 0) return boxes.slice(0, 1);
    const place = (parent: number, start: number): void => {
        let x = start;
        const row = tree.depth[parent]! + 1;
        if (row - tree.depth[focus]! > DEEPEST) return;
        for (const node of tree.heaviest(parent)) {
            const part = (tree.values[node]! / total) * width;
            if (part < 0.4) break;
            boxes.push({ node, row, x, width: part });
            place(node, x);
            x += part;
        }
    };
    place(focus, 0);
    return boxes;
}

/** A few lightnesses, so that neighbours can be told apart. */
function variation(name: string): number {
    let hash = 0;
    for (let at = 0; at < name.length; at += 1) hash = (hash * 31 + name.charCodeAt(at)) | 0;
    return ((hash >>> 4) % 5) * 2 - 4;
}

const hue = (type: NodeType): [number, number, number] => colors()[type === 'process' ? 'root' : type];

export interface Marked {
    matches: Uint8Array | null;
    selected: number;
}

/** Draws boxes with as much of their names as fits. */
export function draw(canvas: HTMLCanvasElement, tree: StackTree, boxes: Box[], marked: Marked): void {
    const ctx = canvas.getContext('2d')!;
    const rows = Math.max(1, ...boxes.map((box) => box.row + 1));
    const width = canvas.clientWidth;
    const ratio = devicePixelRatio;
    canvas.style.height = `${rows * ROW}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(rows * ROW * ratio);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.font = '12px system-ui, sans-serif';
    ctx.textBaseline = 'middle';
    const letter = ctx.measureText('0').width;
    for (const box of boxes) drawBox(ctx, tree, box, marked, letter);
    const selected = boxes.find((box) => box.node === marked.selected);
    if (!selected) return;
    ctx.strokeStyle = colors().ink;
    ctx.lineWidth = 2;
    ctx.strokeRect(selected.x + 1, selected.row * ROW + 1, Math.max(1, selected.width - 2), ROW - 3);
}

function drawBox(
    ctx: CanvasRenderingContext2D,
    tree: StackTree,
    { node, row, x, width }: Box,
    { matches }: Marked,
    letter: number,
): void {
    const name = width > 3 ? printable(tree.name(node)) : '';
    const found = matches && matches[node];
    ctx.globalAlpha = matches && !found ? 0.35 : 1;
    ctx.fillStyle = found ? colors().match : hsl(hue(tree.type(node)), variation(name));
    ctx.fillRect(x, row * ROW, Math.max(0.5, width - (width > 3 ? 1 : 0)), ROW - 1);
    ctx.globalAlpha = 1;
    const room = width - 10;
    if (room < 3 * letter) return;
    ctx.fillStyle = found ? colors().surface : colors().ink;
    ctx.fillText(fitted(ctx, name, room), x + 5, row * ROW + ROW / 2);
}

/** The beginning of a text that fits into `room`. */
function fitted(ctx: CanvasRenderingContext2D, text: string, room: number): string {
    if (ctx.measureText(text).width <= room) return text;
    let low = 0;
    let high = text.length;
    while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (ctx.measureText(`${text.slice(0, middle)}…`).width <= room) low = middle;
        else high = middle - 1;
    }
    return low > 0 ? `${text.slice(0, low)}…` : '';
}
