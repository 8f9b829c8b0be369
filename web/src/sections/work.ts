import { Histogram } from '../charts/histogram';
import { commandLine, report } from '../command';
import type { Copies, Kernel } from '../document';
import { h } from '../dom';
import { count, duration, plural, share, shortSize, size } from '../format';
import { buckets, sumFlat } from '../sums';
import type { Column } from '../table/column';
import { Table } from '../table/table';
import type { View } from '../view';
import { gpus } from './gpus';
import { note, panel } from './section';

const SHORT = (ns: number): string => {
    if (ns < 1e3) return `${ns} ns`;
    if (ns < 1e6) return `${Number((ns / 1e3).toPrecision(3))} us`;
    return ns < 1e9 ? `${Number((ns / 1e6).toPrecision(3))} ms` : `${Number((ns / 1e9).toPrecision(3))} s`;
};
const WHOLE = 'The command lists the whole run: --from and --to select memory events.';

/** Busy time, kernels and copies. */
export function work(view: View): HTMLElement | null {
    const { kernels, copies } = view.run;
    const busy = gpus(view);
    if (!busy && kernels.length === 0 && copies.length === 0) return null;
    return h(
        'div',
        {},
        busy && panel('busy', 'Busy time', busy),
        kernels.length ? panel('kernels', 'Kernels', kernelTable(view)) : null,
        copies.length ? panel('copies', 'Copies', copyTable(view)) : null,
    );
}

/** A name with the process below it, if there are several. */
const named = (name: string, process: string): Node =>
    h(
        'span',
        { class: 'site' },
        h('span', { class: 'elided', title: name }, name),
        process ? h('small', {}, process) : null,
    );

/** The command of a table, which has no range. */
function wholeRun(view: View, options: string): HTMLElement {
    const command = commandLine();
    command.show(report(view, options));
    const about = note(WHOLE);
    view.on(['range'], () => (about.hidden = view.whole));
    return h('div', {}, command.element, about);
}

interface KernelRow {
    kernel: Kernel;
    launches: number;
    ns: number | null;
}

function kernelTable(view: View): HTMLElement {
    const { kernels, processes } = view.run;
    const untimed = kernels.filter((one) => !one.changes);
    const histogram = new Histogram('kernel-histogram', 'Duration', SHORT);
    let all = 0;
    const table = new Table<KernelRow>({
        name: 'kernels',
        caption: 'Kernels',
        columns: kernelColumns(view, processes.length > 1, untimed.length < kernels.length, () => all),
        sort: untimed.length < kernels.length ? 'total' : 'launches',
        id: ({ kernel }) => `${kernel.pid} ${kernel.name}`,
        choose: (row) =>
            histogram.show(row?.kernel.name ?? '', buckets(row?.kernel.histogram ?? [], view.from, view.to)),
    });
    view.on(['range'], () => {
        const rows = kernels.map((kernel) => kernelRow(view, kernel));
        all = rows.reduce((sum, row) => sum + (row.ns ?? 0), 0);
        table.show(rows.filter((row) => row.launches > 0));
    });
    const told =
        untimed.length === 0
            ? null
            : note(
                  `Of ${plural(untimed.length, 'kernel')} only the launches of the whole run are known ` +
                      '(record with --activity for more): the range does not apply to them.',
              );
    return h('div', {}, table.element, told, histogram.element, wholeRun(view, '--kernels --top all'));
}

function kernelRow(view: View, kernel: Kernel): KernelRow {
    if (!kernel.changes) return { kernel, launches: kernel.launches, ns: kernel.total_ns };
    const [, launches, ns] = sumFlat(kernel.changes, 3, view.from, view.to) as [number, number, number];
    return { kernel, launches, ns };
}

function kernelColumns(view: View, several: boolean, timed: boolean, all: () => number): Column<KernelRow>[] {
    const mean = (row: KernelRow): number | null =>
        row.ns === null || row.launches === 0 ? null : row.ns / row.launches;
    const name = ({ kernel }: KernelRow): string => kernel.name;
    const process = ({ kernel }: KernelRow): string => view.process(kernel.pid);
    const time = (
        key: string,
        title: string,
        value: (row: KernelRow) => number | null,
    ): Column<KernelRow> => ({
        key,
        title,
        value,
        cell: (row) => (value(row) === null ? '' : duration(value(row)!)),
    });
    const columns: Column<KernelRow>[] = [
        {
            key: 'name',
            title: 'Kernel',
            text: true,
            value: name,
            cell: (row) => named(name(row), several ? process(row) : ''),
        },
    ];
    columns.push({
        key: 'launches',
        title: 'Launches',
        value: (row) => row.launches,
        cell: (row) => count(row.launches) + (row.kernel.changes || !timed ? '' : ' (whole run)'),
        total: (rows) => {
            const value = rows.reduce((sum, row) => sum + row.launches, 0);
            return { show: count(value), value };
        },
    });
    if (!timed) return columns;
    columns.push(
        time('total', 'Total', (row) => row.ns),
        {
            key: 'share',
            title: '% of kernel time',
            value: (row) => row.ns,
            cell: (row) => (row.ns === null ? '' : share(row.ns, all())),
        },
    );
    return [...columns, time('mean', 'Mean', mean)];
}

/** Memory sets are listed with copies, and are none. */
export const isSet = ({ direction }: Copies): boolean => direction === 'set';

interface CopyRow {
    of: Copies;
    copies: number;
    bytes: number;
    ns: number | null;
}

function copyTable(view: View): HTMLElement {
    const { copies } = view.run;
    const histogram = new Histogram('copy-histogram', 'Size', shortSize);
    const table = new Table<CopyRow>({
        name: 'copies',
        caption: copies.some((one) => isSet(one))
            ? 'Copies and memory sets in the range; the total is of copies'
            : 'Copies in the range',
        columns: copyColumns(view),
        sort: 'bytes',
        id: ({ of }) => `${of.pid} ${of.direction} ${of.mode}`,
        choose: (row) =>
            histogram.show(
                row ? `${row.of.direction}, ${row.of.mode}` : '',
                buckets(row?.of.histogram ?? [], view.from, view.to),
            ),
    });
    view.on(['range'], () => {
        const rows = copies.map((of): CopyRow => {
            if (!of.changes) return { of, copies: of.copies, bytes: of.bytes, ns: of.ns };
            const sums = sumFlat(of.changes, 4, view.from, view.to) as [number, number, number, number];
            return { of, copies: sums[1], bytes: sums[2], ns: of.ns === null ? null : sums[3] };
        });
        table.show(rows.filter((row) => row.copies > 0));
    });
    const command = wholeRun(view, '--copies --top all');
    return h('div', {}, table.element, histogram.element, command);
}

function copyColumns(view: View): Column<CopyRow>[] {
    const speed = (row: CopyRow): number | null => (row.ns ? row.bytes / row.ns : null);
    const direction = ({ of }: CopyRow): string => of.direction;
    const process = ({ of }: CopyRow): string => view.process(of.pid);
    const several = view.run.processes.length > 1;
    const columns: Column<CopyRow>[] = [
        {
            key: 'direction',
            title: 'Direction',
            text: true,
            value: direction,
            cell: (row) => named(direction(row), several ? process(row) : ''),
        },
        {
            key: 'mode',
            title: 'Mode',
            text: true,
            value: ({ of }) => of.mode,
            cell: ({ of }) => of.mode,
        },
        {
            key: 'copies',
            title: 'Copies',
            value: (row) => row.copies,
            cell: (row) => count(row.copies),
            total: (rows) => {
                const value = rows.reduce((sum, row) => sum + (isSet(row.of) ? 0 : row.copies), 0);
                return { show: count(value), value };
            },
        },
        {
            key: 'bytes',
            title: 'Bytes',
            value: (row) => row.bytes,
            cell: (row) => size(row.bytes),
            total: (rows) => {
                const value = rows.reduce((sum, row) => sum + (isSet(row.of) ? 0 : row.bytes), 0);
                return { show: size(value), value };
            },
        },
        {
            key: 'time',
            title: 'Time',
            value: (row) => row.ns,
            cell: (row) => (row.ns ? duration(row.ns) : ''),
        },
        { key: 'speed', title: 'GB/s', value: speed, cell: (row) => speed(row)?.toFixed(1) ?? '' },
    ];
    return columns;
}
