import { commandLine, rangeOptions, report } from '../command';
import { checkbox, choice, h } from '../dom';
import { moment, plural, size } from '../format';
import { Icicle } from '../icicle/icicle';
import type { MeasureName } from '../sums';
import type { View, Weight } from '../view';
import { allocations } from './allocations';
import { panel } from './section';
import { siteTable } from './sites';

const MEASURES: [MeasureName, string][] = [
    ['live', 'live at the end'],
    ['peak', 'at the peak'],
    ['allocated', 'allocated'],
    ['never_freed', 'never freed'],
];

/** Call sites as a graph and as a table, and single allocations. */
export function holders(view: View): HTMLElement | null {
    const { memory } = view.run;
    if (!memory || memory.stacks.length === 0) return null;
    const weights: [Weight, string][] = [
        ['bytes', 'bytes'],
        ['count', 'count'],
    ];
    const hostMemory = memory.stacks.some((one) => one.host);
    const tools = h(
        'div',
        { class: 'tools' },
        choice('memory', MEASURES, view.measure, (measure) => view.set({ measure })),
        choice('weight', weights, view.weight, (weight) => view.set({ weight })),
        hostMemory && checkbox('host memory too', (host) => view.set({ host })),
    );
    const about = h('p', { class: 'note', role: 'status' });
    view.on(['range', 'measure'], () => (about.textContent = sentence(view)));
    const command = commandLine();
    view.on(['range', 'measure'], () => command.show(report(view, analysis(view))));
    const graph = panel('icicle', 'Call stacks', tools, about, new Icicle(view, memory).element);
    const sites = panel('sites', 'Call sites', siteTable(view, memory), command.element);
    return h('div', {}, graph, sites, allocations(view, memory));
}

/** Options of the command that lists the same memory. */
function analysis(view: View): string {
    const name = view.measure === 'peak' ? 'watermark' : 'leakage';
    return `--analysis ${name}${rangeOptions(view)}${view.host ? ' --host' : ''} --top all`;
}

/** Which memory is shown, of what time. */
function sentence(view: View): string {
    const { peakNs, peakBytes, live, never_freed } = view.sums!;
    const span = view.endNs - view.startNs;
    const end = view.to === view.bins ? 'the end of the run' : moment(view.edges[view.to]!, span);
    const stacks = view.run.memory!.stacks;
    const held = stacks.reduce((sum, one, at) => {
        return one.host && !view.host ? sum : sum + never_freed.bytes[at]! - live.bytes[at]!;
    }, 0);
    switch (view.measure) {
        case 'live': {
            const without = `, without ${size(held)} that processes held when they ended`;
            return `Memory live at ${end}${held ? without : ''}.`;
        }
        case 'peak':
            if (peakNs === null || peakBytes === null) return 'No memory in this range.';
            return `Memory live at the peak of GPU memory in the range: ${size(peakBytes)} at ${moment(peakNs, span)}.`;
        case 'never_freed':
            return `Memory never freed up to ${end}${held ? `, of it ${size(held)} held when processes ended` : ''}.`;
        default:
            return `All memory allocated in the range, freed or not, in ${plural(view.to - view.from, 'bin')} of the run.`;
    }
}
