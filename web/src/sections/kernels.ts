import { sumBins } from '../bins';
import { rangeOptions, reportCommand } from '../command';
import type { Kernel } from '../document';
import { h, named, note } from '../dom';
import { count, duration, plural, share } from '../format';
import { type Column, Table, number, text } from '../table';
import type { View } from '../view';

interface Row {
    kernel: Kernel;
    launches: number;
    ns: number | null;
}

function toRow(view: View, kernel: Kernel): Row {
    if (!kernel.changes) return { kernel, launches: kernel.launches, ns: null };
    const [, launches, ns] = sumBins(kernel.changes, 3, view.from, view.to);
    return { kernel, launches, ns: kernel.total_ns === null ? null : ns };
}

/** Kernels with their launches and times. */
export function kernelTable(view: View): HTMLElement {
    const { kernels } = view.run;
    const timed = kernels.some(({ total_ns }) => total_ns !== null);
    const time = ({ ns }: Row): number | null => ns;
    let all = 0;
    const columns: Column<Row>[] = [
        text(
            'name',
            'Kernel',
            ({ kernel }) => kernel.name,
            (name, { kernel }) => named(kernel.short, view.ofSeveral(kernel.pid), name),
        ),
        number('launches', 'Launches', ({ launches }) => launches, count, { total: () => true }),
    ];
    if (timed) {
        columns.push(
            number('total', 'Total', time, duration),
            number('share', '% of kernel time', time, (ns) => share(ns, all)),
            number('mean', 'Mean', ({ ns, launches }) => (ns === null ? null : ns / launches), duration),
        );
    }
    const table = new Table<Row>({
        name: 'kernels',
        caption: 'Kernels in the range',
        columns,
        sort: timed ? 'total' : 'launches',
        id: ({ kernel }) => `${kernel.pid} ${kernel.name}`,
    });
    view.on(() => {
        const rows = kernels.map((kernel) => toRow(view, kernel));
        all = rows.reduce((sum, { ns }) => sum + (ns ?? 0), 0);
        table.show(rows.filter(({ launches }) => launches > 0));
    });
    const counted = kernels.filter(({ changes }) => !changes).length;
    const about =
        `${plural(counted, 'kernel')} with the launches of the whole run, whatever the range: ` +
        'times were not recorded (--activity records them).';
    const command = reportCommand(view, () => `--analysis kernels${rangeOptions(view)} --top all`);
    return h('div', {}, table.element, counted > 0 && note(about), command);
}
