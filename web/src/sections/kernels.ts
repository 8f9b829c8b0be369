import { Histogram } from '../charts/histogram';
import type { Kernel } from '../document';
import { h } from '../dom';
import { count, duration, plural, share } from '../format';
import { buckets, sumFlat } from '../sums';
import type { Column } from '../table/column';
import { Table } from '../table/table';
import type { View } from '../view';
import { note } from './section';
import { named, ofRange } from './shared';

/** A duration for an axis. */
const short = (ns: number): string => {
    if (ns < 1e3) return `${ns} ns`;
    if (ns < 1e6) return `${Number((ns / 1e3).toPrecision(3))} us`;
    return ns < 1e9 ? `${Number((ns / 1e6).toPrecision(3))} ms` : `${Number((ns / 1e9).toPrecision(3))} s`;
};

interface KernelRow {
    kernel: Kernel;
    launches: number;
    ns: number | null;
}

/** Kernels with their launches and times, and the durations of the one that is chosen. */
export function kernelTable(view: View): HTMLElement {
    const { kernels, processes } = view.run;
    const untimed = kernels.filter((one) => !one.changes);
    const timed = kernels.some((one) => one.total_ns !== null);
    const histogram = new Histogram('kernel-histogram', 'Duration', short);
    const showHistogram = (kernel?: Kernel): void => {
        const counts = buckets(kernel?.histogram ?? [], view.from, view.to);
        histogram.show(kernel?.short ?? kernel?.name ?? '', counts, kernel?.name);
    };
    let all = 0;
    const table = new Table<KernelRow>({
        name: 'kernels',
        caption: 'Kernels in the range',
        columns: kernelColumns(view, processes.length > 1, timed, () => all),
        sort: timed ? 'total' : 'launches',
        id: ({ kernel }) => `${kernel.pid} ${kernel.name}`,
        choose: (row) => showHistogram(row?.kernel),
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
    return h('div', {}, table.element, told, histogram.element, ofRange(view, '--kernels'));
}

function kernelRow(view: View, kernel: Kernel): KernelRow {
    if (!kernel.changes) return { kernel, launches: kernel.launches, ns: kernel.total_ns };
    const [, launches, ns] = sumFlat(kernel.changes, 3, view.from, view.to) as [number, number, number];
    return { kernel, launches, ns: kernel.total_ns === null ? null : ns };
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
            cell: (row) => named(row.kernel.short ?? name(row), several ? process(row) : '', name(row)),
        },
    ];
    columns.push({
        key: 'launches',
        title: 'Launches',
        value: (row) => row.launches,
        cell: (row) => count(row.launches) + (row.kernel.changes ? '' : ' (whole run)'),
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
