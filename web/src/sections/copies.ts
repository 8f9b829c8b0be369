import { Histogram } from '../charts/histogram';
import type { Copies } from '../document';
import { h } from '../dom';
import { count, duration, shortSize, size } from '../format';
import { buckets, sumFlat } from '../sums';
import type { Column } from '../table/column';
import { Table } from '../table/table';
import type { View } from '../view';
import { named, ofRange } from './shared';

/** Memory sets are listed with copies, and are none. */
export const isSet = ({ direction }: Copies): boolean => direction === 'set';

interface CopyRow {
    of: Copies;
    copies: number;
    bytes: number;
    ns: number | null;
}

/** Copies by direction and mode, and the sizes of those that are chosen. */
export function copyTable(view: View): HTMLElement {
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
    const command = ofRange(view, '--copies');
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
