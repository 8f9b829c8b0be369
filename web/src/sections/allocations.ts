import { commandLine, report } from '../command';
import type { AllocationRow, Memory } from '../document';
import { h } from '../dom';
import { count, duration, moment, plural, size } from '../format';
import type { Column } from '../table/column';
import { Table } from '../table/table';
import type { View } from '../view';
import { panel } from './section';

const ENDED = ['live at the end', 'freed', 'held at exit'];

/** Allocations that are live at the cursor's time, the largest first. */
export function allocations(view: View, memory: Memory): HTMLElement | null {
    const { all, rows } = memory.allocations;
    if (rows.length === 0) return null;
    const table = new Table<AllocationRow>({
        name: 'allocations',
        caption: 'Allocations live at the cursor',
        columns: columns(view, memory),
        sort: 'bytes',
        id: (row) => `${row[0]} ${row[2]}`,
        empty: 'no listed allocation is live at this time',
    });
    const about = h('p', { class: 'note', role: 'status' });
    const command = commandLine();
    const update = (): void => {
        const at = view.cursorNs;
        const live = rows.filter((row) => {
            const [, , from, to, , stack] = row;
            return from <= at && (to === null || to > at) && (view.host || !memory.stacks[stack]?.host);
        });
        table.show(live);
        const bytes = live.reduce((sum, row) => sum + row[1], 0);
        const when = moment(at, view.endNs - view.startNs);
        const listed =
            rows.length < all
                ? ` This file lists the largest ${count(rows.length)} of ${plural(all, 'allocation')}.`
                : ` This file lists all ${plural(all, 'allocation')}.`;
        about.textContent = `At ${when}: ${plural(live.length, 'allocation')}, ${size(bytes)}.${listed}`;
        about.dataset.bytes = String(bytes);
        about.dataset.count = String(live.length);
        const host = view.host ? ' --host' : '';
        command.show(
            report(
                view,
                `--analysis leakage --allocations --group thread --to ${Math.round(at)}ns${host} --top all`,
            ),
        );
    };
    view.on(['cursor', 'measure'], update);
    return panel('allocations', 'Allocations at the cursor', about, table.element, command.element);
}

function columns(view: View, memory: Memory): Column<AllocationRow>[] {
    const span = view.endNs - view.startNs;
    const labels = new Map(memory.sites.map((site) => [site.id, site.label]));
    const site = (row: AllocationRow): string => {
        const stack = memory.stacks[row[5]];
        return stack ? `#${stack.site} ${labels.get(stack.site) ?? stack.function}` : '';
    };
    const gone = ([, , , to, ended]: AllocationRow): string => {
        const how = ENDED[ended] ?? '';
        return to === null ? how : ended === 1 ? moment(to, span) : `${how}, ${moment(to, span)}`;
    };
    const age = (row: AllocationRow): number => view.cursorNs - row[2];
    const kind = (row: AllocationRow): string => memory.stacks[row[5]]?.kind ?? '';
    const process = (row: AllocationRow): string => {
        const stack = memory.stacks[row[5]];
        return stack ? view.process(stack.pid) : '';
    };
    return [
        {
            key: 'address',
            title: 'Address',
            text: true,
            value: (row) => row[0],
            cell: (row) => h('code', {}, row[0]),
        },
        { key: 'bytes', title: 'Size', value: (row) => row[1], cell: (row) => size(row[1]) },
        { key: 'kind', title: 'Kind', text: true, value: kind, cell: kind },
        {
            key: 'age',
            title: 'Age',
            hint: 'at the cursor',
            value: age,
            cell: (row) => duration(age(row)),
        },
        {
            key: 'time',
            title: 'Allocated',
            value: (row) => row[2],
            cell: (row) => moment(row[2], span),
        },
        { key: 'gone', title: 'Freed', value: (row) => row[3], cell: gone },
        {
            key: 'site',
            title: 'Call site',
            text: true,
            value: site,
            cell: (row) => h('span', { class: 'elided', title: site(row) }, site(row)),
        },
        { key: 'process', title: 'Process', text: true, value: process, cell: process },
        { key: 'tid', title: 'Thread', value: (row) => row[6], cell: (row) => String(row[6]) },
    ];
}
