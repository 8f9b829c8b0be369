import { sumBins } from '../bins';
import { rangeOptions, reportCommand } from '../command';
import type { CopySite, Copies } from '../document';
import { h, named } from '../dom';
import { count, duration, size } from '../format';
import { Table, number, text } from '../table';
import type { View } from '../view';

/** Memory sets are listed with copies, and are none. */
export const isCopy = ({ direction }: Copies): boolean => direction !== 'set';

interface Row {
    of: Copies;
    copies: number;
    bytes: number;
    ns: number;
}

/** Copies by direction and mode. */
export function copyTable(view: View): HTMLElement {
    const { copies } = view.run;
    const total = ({ of }: Row): boolean => isCopy(of);
    const speed = ({ bytes, ns }: Row): number | null => (ns ? bytes / ns : null);
    const sets = copies.every(isCopy) ? '' : ' and memory sets; the total is of copies';
    const table = new Table<Row>({
        name: 'copies',
        caption: `Copies in the range${sets}`,
        columns: [
            text(
                'direction',
                'Direction',
                ({ of }) => of.direction,
                (direction, { of }) => named(direction, view.ofSeveral(of.pid)),
            ),
            text('mode', 'Mode', ({ of }) => of.mode),
            number('copies', 'Copies', (row) => row.copies, count, { total }),
            number('bytes', 'Bytes', (row) => row.bytes, size, { total }),
            number('time', 'Time', (row) => row.ns, duration),
            number('speed', 'GB/s', speed, (one) => one.toFixed(1)),
        ],
        sort: 'bytes',
        id: ({ of }) => `${of.pid} ${of.direction} ${of.mode}`,
    });
    view.on(() => {
        const rows = copies.map((of): Row => {
            const [, copies, bytes, ns] = sumBins(of.changes, 4, view.from, view.to);
            return { of, copies, bytes, ns };
        });
        table.show(rows.filter((row) => row.copies > 0));
    });
    const command = reportCommand(view, () => `--analysis copies${rangeOptions(view)} --top all`);
    return h('div', {}, table.element, command);
}

/** Copies by call site. */
export function copySiteTable(view: View): HTMLElement {
    const table = new Table<CopySite>({
        name: 'copy-sites',
        caption: 'Copies by call site, of the whole run',
        columns: [
            text('where', 'Call site', ({ label }) => label),
            text('process', 'Process', ({ pid }) => view.process(pid)),
            text('direction', 'Direction', ({ direction }) => direction),
            text('host', 'Host memory', ({ host_memory }) => host_memory ?? ''),
            number('copies', 'Copies', ({ calls }) => calls),
            number('bytes', 'Bytes', ({ bytes }) => bytes, size),
            number('waits', 'Waited', ({ waits }) => waits),
            number('time', 'Time', ({ seconds }) => seconds * 1e9, duration),
            text('advice', 'Advice', ({ advice }) => advice ?? ''),
        ],
        sort: 'time',
        id: (of) => [of.pid, of.label, of.api, of.direction, of.host_memory].join(' '),
    });
    table.show(view.run.copy_sites);
    return table.element;
}
