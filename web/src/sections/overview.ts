import { leftWord, sumBins } from '../bins';
import { reportCommand } from '../command';
import type { FileProcess } from '../document';
import { h, note } from '../dom';
import { count, duration, plural, size } from '../format';
import { type Column, Table, number, text } from '../table';
import type { View } from '../view';
import { isCopy } from './copies';

type Recorded = 'peak_bytes' | 'never_freed_bytes' | 'launches' | 'copies' | 'copied_bytes';

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
        const sums = view.sumsOf(memory);
        const amounts = { [leftWord(sums)]: sums.never_freed, Peak: sums.peak, Allocated: sums.allocated };
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

const recorded = (key: Recorded, title: string, show: (value: number) => string): Column<FileProcess> =>
    number<FileProcess>(key, title, (one) => one[key], show, { none: 'not recorded' });

function processes(view: View): HTMLElement {
    const { memory } = view.run;
    const left = memory ? leftWord(view.sumsOf(memory)) : 'Never freed';
    const table = new Table<FileProcess>({
        name: 'processes',
        caption: 'Processes, the whole run',
        columns: [
            text('name', 'Process', ({ pid }) => view.process(pid)),
            number('run_ns', 'Run time', (one) => one.run_ns, duration),
            recorded('peak_bytes', 'Peak', size),
            recorded('never_freed_bytes', left, size),
            recorded('launches', 'Launches', count),
            recorded('copies', 'Copies', count),
            recorded('copied_bytes', 'Copied', size),
        ],
        sort: 'peak_bytes',
        id: (one) => String(one.pid),
    });
    table.show(view.run.processes);
    const command = reportCommand(view, () => '--analysis processes');
    return h('div', {}, table.element, command);
}
