import { commandLine, report } from '../command';
import type { FileProcess } from '../document';
import { h } from '../dom';
import { count, duration, moment, plural, size } from '../format';
import type { Column } from '../table/column';
import { Table } from '../table/table';
import type { View } from '../view';
import { isSet } from './copies';

/** What was traced and lost, the main figures and the processes, all of the whole run. */
export function overview(view: View): HTMLElement {
    const { run } = view;
    const { complete, sentence } = run.lost;
    const state = complete === null ? 'unknown' : complete ? 'complete' : 'incomplete';
    const lost = h(
        'p',
        { class: `lost ${state}` },
        complete ? null : h('span', { class: 'badge' }, state),
        h('span', {}, sentence),
    );
    const traced = run.traced.map((sentence) => h('p', { class: 'traced' }, sentence));
    const began = run.start ? h('p', { class: 'note' }, `Time 0 is ${run.start}.`) : null;
    return h('div', {}, ...traced, lost, began, tiles(view), processes(view));
}

function tiles(view: View): HTMLElement | null {
    const { memory, processes, kernels, copies } = view.run;
    const tile = (name: string, value: string, more: string): HTMLElement =>
        h('div', { class: 'tile' }, h('dt', {}, name), h('dd', {}, value), h('dd', {}, more));
    const tiles: HTMLElement[] = [];
    if (memory?.peak) {
        const { bytes, time_ns } = memory.peak;
        tiles.push(tile('Peak', size(bytes), `at ${moment(time_ns, view.endNs - view.startNs)}`));
    }
    if (memory && view.sums) {
        const gpu = memory.stacks.map((one, index) => (one.host ? -1 : index)).filter((at) => at >= 0);
        const total = (row: Float64Array): number => gpu.reduce((sum, at) => sum + row[at]!, 0);
        const { never_freed, allocated } = view.sums;
        const never = plural(total(never_freed.count), 'allocation');
        tiles.push(tile('Never freed', size(total(never_freed.bytes)), never));
        tiles.push(
            tile('Allocated', size(total(allocated.bytes)), plural(total(allocated.count), 'allocation')),
        );
    }
    const launches = kernels.reduce((sum, one) => sum + one.launches, 0);
    if (launches) tiles.push(tile('Launches', count(launches), `of ${plural(kernels.length, 'kernel')}`));
    const copied = copies.reduce((sum, one) => sum + (isSet(one) ? 0 : one.bytes), 0);
    const times = copies.reduce((sum, one) => sum + (isSet(one) ? 0 : one.copies), 0);
    if (times) tiles.push(tile('Copied', size(copied), `in ${plural(times, 'copy')}`));
    if (processes.length > 1) tiles.push(tile('Processes', count(processes.length), ''));
    return tiles.length ? h('dl', { class: 'tiles' }, ...tiles) : null;
}

function processes(view: View): HTMLElement | null {
    if (view.run.processes.length === 0) return null;
    const name = (one: FileProcess): string => one.process ?? one.comm ?? '';
    type Key = 'run_ns' | 'peak_bytes' | 'never_freed_bytes' | 'launches' | 'copies' | 'copied_bytes';
    const number = (key: Key, title: string, text: (value: number) => string): Column<FileProcess> => ({
        key,
        title,
        value: (one) => one[key] ?? null,
        cell: (one) => (one[key] == null ? '' : text(one[key])),
    });
    const columns: Column<FileProcess>[] = [
        { key: 'pid', title: 'PID', value: (one) => one.pid, cell: (one) => String(one.pid) },
        { key: 'process', title: 'Process', text: true, value: name, cell: name },
        number('run_ns', 'Run time', duration),
        number('peak_bytes', 'Peak', size),
        number('never_freed_bytes', 'Never freed', size),
        number('launches', 'Launches', count),
        number('copies', 'Copies', count),
        number('copied_bytes', 'Copied', size),
    ];
    const used = columns.filter((one) => view.run.processes.some((row) => one.value(row) !== null));
    const table = new Table({
        name: 'processes',
        caption: 'Processes, the whole run',
        columns: used,
        sort: used.some((one) => one.key === 'peak_bytes') ? 'peak_bytes' : 'pid',
        id: (one) => String(one.pid),
    });
    table.show(view.run.processes);
    const command = commandLine();
    command.show(report(view, '--processes'));
    return h('div', {}, table.element, command.element);
}
