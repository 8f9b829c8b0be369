import { fixedCommand, quoted } from '../command';
import type { Grown, Pair, ReportDocument } from '../document';
import { choice, fill, h } from '../dom';
import { size } from '../format';
import { Table, number, text } from '../table';

/** A difference in size, with its sign. */
const change = (bytes: number): string => (bytes > 0 ? '+' : '') + size(bytes);
const colored = (bytes: number): Node =>
    h('span', { class: bytes > 0 ? 'grown' : bytes < 0 && 'shrunk' }, change(bytes));

/** Growth by call site between two runs. */
export function growth({ diff, runs }: ReportDocument): HTMLElement | null {
    if (!diff) return null;
    const { tensors } = diff;
    const parts = new Map<string, [Grown[], Pair]>([
        ['never freed', [diff.never_freed, diff.leaked]],
        ['at the peak', [diff.at_peak, diff.watermark]],
    ]);
    if (tensors) {
        parts.set('tensors never freed', [tensors.never_freed, tensors.leaked]);
        parts.set('tensors at the peak', [tensors.at_peak, tensors.watermark]);
    }
    const bytes = (at: 0 | 1) => (row: Grown) => row.bytes[at];
    const allocations = (at: 0 | 1) => (row: Grown) => row.allocations[at];
    const table = new Table<Grown>({
        name: 'diff',
        caption: 'Growth by call site',
        columns: [
            number('frames', 'Frames', (row) => row.stack.length),
            text('label', 'Call site', (row) => row.label),
            number('change', 'Change', (row) => row.bytes[1] - row.bytes[0], colored),
            number('before', 'Before', bytes(0), size),
            number('after', 'After', bytes(1), size),
            number('count_before', 'Count before', allocations(0)),
            number('count_after', 'Count after', allocations(1)),
        ],
        sort: 'change',
        id: (row) => `${row.label} ${row.stack.join(' ')}`,
        detail: (row) => h('ol', {}, ...row.stack.map((frame) => h('li', {}, frame))),
        empty: 'no call site differs',
    });
    const sums = h('p', { role: 'status' });
    const show = (name: string): void => {
        const [rows, [before, after]] = parts.get(name)!;
        table.show(rows);
        fill(sums, `${name}: ${size(before)} before, ${size(after)} after (`, colored(after - before), ')');
    };
    const names = [...parts.keys()].map((name): [string, string] => [name, name]);
    show(names[0]![0]);
    const files = `${quoted(runs[0]!.file)} --diff ${quoted(runs[1]!.file)}`;
    return h(
        'div',
        {},
        h('div', { class: 'tools' }, choice('Memory', names, names[0]![0], show), sums),
        table.element,
        fixedCommand(`gpuprobe report ${files} --top all`),
    );
}
