import type { Segment, Tensors } from '../document';
import { h, swatch } from '../dom';
import { duration, share, size } from '../format';
import { Table, number, text } from '../table';
import { COLORS, area, css, onTheme } from '../theme';
import { distinct, fullLabel } from '../view';

/** In place of a path: the block is free, or will be when a stream has passed. */
const FREE = -2;
const PENDING = -3;
const WIDTH = 600;
const HEIGHT = 14;

type Block = [offset: number, bytes: number, path: number, age: number];

interface Row {
    segment: Segment;
    blocks: Block[];
    used: number;
    free: number;
}

function toRow(segment: Segment): Row {
    const blocks: Block[] = [];
    for (let at = 0; at < segment.blocks.length; at += 4)
        blocks.push(segment.blocks.slice(at, at + 4) as Block);
    const free = blocks.filter(([, , path]) => path === FREE).map(([, bytes]) => bytes);
    const used = segment.bytes - free.reduce((sum, bytes) => sum + bytes, 0);
    return { segment, blocks, used, free: free.reduce((most, bytes) => Math.max(most, bytes), 0) };
}

/** Segments of an allocator at the end of the recording, each a bar to scale with its blocks by call site. */
export function segmentMap(held: Tensors, colors: number[]): HTMLElement {
    const rows = held.segments.map(toRow);
    const largest = rows.reduce((most, { segment }) => Math.max(most, segment.bytes), 1);
    const nameOf = (path: number): string => {
        if (path === FREE) return 'free, cached';
        if (path === PENDING) return 'freed, waiting for a stream';
        const found = held.paths[path];
        return found ? fullLabel(held, found) : 'unknown, or from before attach';
    };
    const code = (address: string): Node => h('code', {}, address);
    const part = (used: number, { segment }: Row): string => share(used, segment.bytes);
    const bar = (_: string, { segment, blocks }: Row): HTMLElement => {
        const width = Math.max(4, Math.round((segment.bytes * WIDTH) / largest));
        const canvas = h('canvas', { width, height: HEIGHT });
        const context = canvas.getContext('2d')!;
        context.fillStyle = css('free');
        context.fillRect(0, 0, width, HEIGHT);
        for (const [offset, bytes, path] of blocks) {
            if (path === FREE) continue;
            context.fillStyle = area(colors[path] ?? COLORS);
            const wide = (bytes / segment.bytes) * width;
            const seen = Math.max(0.6, wide > 3 ? wide - 1 : wide);
            context.fillRect((offset / segment.bytes) * width, 0, seen, HEIGHT);
        }
        canvas.addEventListener('mousemove', ({ offsetX }) => {
            const at = (offsetX / canvas.clientWidth) * segment.bytes;
            const block = blocks.find(([offset, bytes]) => at >= offset && at < offset + bytes);
            if (!block) return;
            const [offset, bytes, path, age] = block;
            const old = age >= 0 ? `, ${duration(age)} old` : '';
            canvas.title = `${nameOf(path)}: ${size(bytes)}${old}, at offset ${size(offset)}`;
        });
        return canvas;
    };
    const table = new Table<Row>({
        name: 'segments',
        caption: 'Segments and their blocks at the end of the recording',
        columns: [
            text('address', 'Segment', ({ segment }) => segment.address, code),
            number('bytes', 'Bytes', ({ segment }) => segment.bytes, size),
            number('used', 'In use', ({ used }) => used, part),
            number('largest_free', 'Largest free', ({ free }) => free, size),
            number('blocks', 'Blocks', ({ blocks }) => blocks.filter(([, , path]) => path !== FREE).length),
            text('map', 'Map', () => '', bar),
        ],
        sort: 'bytes',
        id: ({ segment }) => segment.address,
    });
    table.show(rows);
    onTheme(() => table.show(rows));
    const used = [...new Set(rows.flatMap(({ blocks }) => blocks.map(([, , path]) => path)))];
    const named = used.filter((path) => (colors[path] ?? COLORS) < COLORS);
    const names = named.map(nameOf);
    const keys = named.map((path, at) =>
        swatch(area(colors[path]!), distinct(names[at]!, names)[0], names[at]),
    );
    const legend = [...keys, swatch(area(COLORS), 'other or unknown'), swatch('var(--free)', nameOf(FREE))];
    return h('div', {}, h('p', { class: 'keys' }, ...legend), table.element);
}
