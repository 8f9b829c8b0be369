import type { Segment } from '../document';
import { h } from '../dom';
import { count, share, size } from '../format';

/** In place of a site: the block is free. */
export const FREE = -2;

interface Block {
    offset: number;
    bytes: number;
    site: number;
    age: number;
}

/** A segment with its blocks. */
export interface Row {
    address: string;
    bytes: number;
    used: number;
    largestFree: number;
    blocks: Block[];
}

export function toRow({ address, bytes, blocks: flat }: Segment): Row {
    const blocks: Block[] = [];
    for (let at = 0; at < flat.length; at += 4) {
        const [offset, length, site, age] = flat.slice(at, at + 4) as [number, number, number, number];
        blocks.push({ offset, bytes: length, site, age });
    }
    const used = blocks.reduce((sum, one) => sum + (one.site === FREE ? 0 : one.bytes), 0);
    const free = blocks.filter((one) => one.site === FREE).map((one) => one.bytes);
    return { address, bytes, used, largestFree: Math.max(0, ...free), blocks };
}

/** The segments with what is in use of each, as a table. */
export function segmentTable(segments: Row[]): HTMLElement {
    const heads = ['Segment', 'Bytes', 'In use', 'Largest free', 'Blocks in use'];
    const number = (key: string, value: number, text: string): HTMLElement =>
        h('td', { 'data-key': key, 'data-value': value }, text);
    const rows = segments.map((row) => {
        const used = row.blocks.filter((one) => one.site !== FREE).length;
        return h(
            'tr',
            { 'data-id': row.address },
            h('th', { scope: 'row' }, h('code', {}, row.address)),
            number('bytes', row.bytes, size(row.bytes)),
            number('used', row.used, `${size(row.used)}, ${share(row.used, row.bytes)}`),
            number('largest_free', row.largestFree, size(row.largestFree)),
            number('blocks', used, count(used)),
        );
    });
    const head = h('tr', {}, ...heads.map((text) => h('th', { scope: 'col' }, text)));
    const body = h('tbody', {}, ...rows);
    return h('table', { 'data-table': 'segments' }, h('thead', {}, head), body);
}
