import { commandLine, quoted } from '../command';
import type { Diff, Grown, ReportDocument } from '../document';
import { choice, fill, h } from '../dom';
import { change, count, size } from '../format';
import type { Column } from '../table/column';
import { Table } from '../table/table';

/** Growth by call site between two runs. */
export function diffTable({ diff, runs }: ReportDocument): HTMLElement | null {
    if (!diff || runs.length < 2) return null;
    const parts: [string, string, Grown[] | undefined, [number, number] | undefined][] = [
        ['never_freed', 'never freed', diff.never_freed, diff.leaked],
        ['at_peak', 'at the peak', diff.at_peak, diff.watermark],
        ...tensorParts(diff),
    ];
    const known = parts.filter(([, , rows]) => rows);
    const table = new Table<Grown>({
        name: 'diff',
        caption: 'Growth by call site',
        columns: columns(),
        sort: 'change',
        id: (row) => `${row.label} ${row.stack.join(' ')}`,
        detail: (row) => {
            const items = row.stack.map((frame) => h('li', {}, frame));
            return h('div', { class: 'stacks' }, h('ol', { class: 'stack' }, ...items));
        },
        empty: 'no call site differs',
    });
    const sums = h('p', { class: 'lead', role: 'status' });
    const show = (name: string): void => {
        const part = known.find(([one]) => one === name)!;
        table.show(part[2]!);
        fill(sums, ...totals(part[1], part[3]));
    };
    const options = known.map(([name, text]): [string, string] => [name, text]);
    if (options[0]) show(options[0][0]);
    const command = commandLine();
    command.show(`gpuprobe report ${quoted(runs[0]!.file)} --diff ${quoted(runs[1]!.file)} --top all`);
    const tools = h('div', { class: 'tools' }, choice('memory', options, options[0]?.[0] ?? '', show));
    return h('div', {}, tools, sums, table.element, command.element);
}

function tensorParts({
    tensors,
}: Diff): [string, string, Grown[] | undefined, [number, number] | undefined][] {
    if (!tensors) return [];
    return [
        ['tensors', 'tensors never freed', tensors.never_freed, tensors.leaked],
        ['tensors_peak', 'tensors at the peak', tensors.at_peak, tensors.watermark],
    ];
}

function totals(name: string, sums: [number, number] | undefined): (Node | string)[] {
    if (!sums) return [];
    const [before, after] = sums;
    const grown = h('strong', {}, change(after - before));
    return [`${name}: ${size(before)} before, ${size(after)} after (`, grown, ')'];
}

function columns(): Column<Grown>[] {
    const grown = (row: Grown): number => row.bytes[1] - row.bytes[0];
    const bytes = (key: string, title: string, at: 0 | 1): Column<Grown> => ({
        key,
        title,
        value: (row) => row.bytes[at],
        cell: (row) => size(row.bytes[at]),
    });
    const counts = (key: string, title: string, at: 0 | 1): Column<Grown> => ({
        key,
        title,
        value: (row) => row.allocations[at],
        cell: (row) => count(row.allocations[at]),
    });
    return [
        {
            key: 'stack',
            title: 'Frames',
            value: (row) => row.stack.length,
            cell: (row) => String(row.stack.length),
        },
        {
            key: 'label',
            title: 'Call site',
            text: true,
            value: (row) => row.label,
            cell: (row) => row.label,
        },
        {
            key: 'change',
            title: 'Change',
            value: grown,
            cell: (row) =>
                h(
                    'span',
                    { class: grown(row) > 0 ? 'grown' : grown(row) < 0 ? 'shrunk' : 'zero' },
                    change(grown(row)),
                ),
        },
        bytes('before', 'Before', 0),
        bytes('after', 'After', 1),
        counts('count_before', 'Count before', 0),
        counts('count_after', 'Count after', 1),
    ];
}
