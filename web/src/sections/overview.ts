import { addFigures } from '../bins';
import { reportCommand } from '../command';
import type { FileProcess } from '../document';
import { h, note } from '../dom';
import { count, duration, plural, size } from '../format';
import { Table, number, text } from '../table';
import type { View } from '../view';
import { isCopy } from './copies';
import { sumBins } from '../bins';

/** What was traced and lost, the main figures and the processes, all of the whole run. */
export function overview(view: View): HTMLElement {
    const { lost, traced, start } = view.run;
    const state = { null: 'unknown', true: '', false: 'incomplete' }[`${lost.complete}`];
    const badge = state && h('span', { class: 'badge bad' }, state);
    return h(
        'div',
        {},
        h('p', {}, traced),
        h('p', { class: 'lost' }, badge, lost.sentence),
        start && note(`Time 0 is ${start}.`),
        h('dl', { class: 'tiles' }, ...tiles(view)),
        view.run.processes.length > 0 && processes(view),
    );
}

function tiles(view: View): HTMLElement[] {
    const { memory, kernels, copies } = view.run;
    const found: HTMLElement[] = [];
    const tile = (name: string, value: string, more: string): void => {
        found.push(h('div', {}, h('dt', {}, name), h('dd', {}, value), h('dd', {}, more)));
    };
    if (memory) {
        const gpu = view.figuresOf(memory).filter((_, at) => !memory.paths[at]!.host);
        const { peak, allocated, never_freed } = addFigures(gpu);
        const amounts = { Peak: peak, 'Never freed': never_freed, Allocated: allocated };
        for (const [name, [bytes, n]] of Object.entries(amounts))
            tile(name, size(bytes), plural(n, 'allocation'));
    }
    const launches = kernels.reduce((sum, one) => sum + one.launches, 0);
    if (launches > 0) tile('Launches', count(launches), `of ${plural(kernels.length, 'kernel')}`);
    const sums = copies.filter(isCopy).map(({ changes }) => sumBins(changes, 4, 0, view.bins));
    const [times, bytes] = [1, 2].map((column) => sums.reduce((sum, row) => sum + row[column]!, 0));
    if (times) tile('Copied', size(bytes!), `in ${plural(times, 'copy')}`);
    return found;
}

function processes(view: View): HTMLElement {
    const table = new Table<FileProcess>({
        name: 'processes',
        caption: 'Processes, the whole run',
        columns: [
            number('pid', 'PID', (one) => one.pid, String),
            text('process', 'Process', (one) => one.comm ?? ''),
            number('run_ns', 'Run time', (one) => one.run_ns, duration),
            number('peak_bytes', 'Peak', (one) => one.peak_bytes, size),
            number('never_freed_bytes', 'Never freed', (one) => one.never_freed_bytes, size),
            number('launches', 'Launches', (one) => one.launches),
            number('copies', 'Copies', (one) => one.copies),
            number('copied_bytes', 'Copied', (one) => one.copied_bytes, size),
        ],
        sort: 'peak_bytes',
        id: (one) => String(one.pid),
    });
    table.show(view.run.processes);
    return h(
        'div',
        {},
        table.element,
        reportCommand(view, () => '--analysis processes'),
    );
}
