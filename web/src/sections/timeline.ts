import { areaChart } from '../areas';
import { quoted, rangeOptions, reportCommand } from '../command';
import type { Path } from '../document';
import { h, note } from '../dom';
import { moment, plural } from '../format';
import { type View, fullLabel } from '../view';

/** GPU memory over time by kind, call site or owner, and the requests that were refused. */
export function timeline(view: View): HTMLElement | null {
    const { memory, file } = view.run;
    if (!memory || memory.paths.length === 0) return null;
    const { incidents, overlay } = memory;
    const gpu = (label: (path: Path) => string) => (path: Path) => (path.host ? null : label(path));
    const chart = areaChart(view, memory, {
        name: 'memory',
        label: `memory over time${view.name ? `, ${view.name}` : ''}`,
        height: 320,
        top: view.scale.bytes * 1.08,
        by: [
            ['call site', gpu((path) => fullLabel(memory, path))],
            ['kind', gpu(({ kind }) => kind)],
            ['owner', gpu(({ owner }) => owner ?? 'unknown')],
        ],
        incidents,
        overlay,
    });
    const refused = incidents.map(({ time_ns, text }) =>
        h('li', {}, `${moment(time_ns, view.span)}: ${text}`),
    );
    const plot = h('code', {}, `gpuprobe plot ${quoted(file)} -o memory.svg --by site`);
    return h(
        'div',
        {},
        chart,
        refused.length > 0 && h('h4', {}, `Out of memory: ${plural(refused.length, 'request')} refused`),
        refused.length > 0 && h('ul', {}, ...refused),
        note('As a picture: ', plot),
        reportCommand(view, () => `--analysis usage${rangeOptions(view)}`),
    );
}
