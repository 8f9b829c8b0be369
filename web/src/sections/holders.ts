import { type Figures, type Measure, addFigures, highestBin } from '../bins';
import { Command, quoted, rangeOptions } from '../command';
import type { Held } from '../document';
import { choice, h, named, note } from '../dom';
import { Flame } from '../flame';
import { count, moment, plural, size } from '../format';
import { Table, number, text } from '../table';
import { type View, framePlace, frameText, labelOf, leaks, siteOf } from '../view';

const MEASURES: [Measure, string][] = [
    ['live', 'live at the end'],
    ['peak', 'at the peak'],
    ['allocated', 'allocated'],
    ['never_freed', 'never freed'],
];
/** Call paths of a site that are shown; more are counted. */
const SHOWN = 5;

/** A call site with the sums of its call paths over the range. */
interface Site {
    id: string;
    label: string;
    about: string;
    paths: number[];
    sums: Figures;
}

/** Call paths as a flame graph, and call sites as a table. */
export function holders(view: View): HTMLElement | null {
    const { memory } = view.run;
    return memory && memory.paths.length > 0 ? heldParts(view, memory, 'sites', '') : null;
}

/** The same of any memory; `options` are more of the command. */
export function heldParts(view: View, held: Held, name: string, options: string): HTMLElement {
    let [measure, unit, host] = [firstMeasure(view, held), 0, false];
    let sorted = measure;
    const flame = new Flame(view, held);
    const about = note();
    const table = siteTable(view, held, name, () => measure);
    const command = new Command();
    const update = (): void => {
        const figures = view.figuresOf(held);
        const shown = (at: number): boolean => host || !held.paths[at]!.host;
        const weights = figures.map((one, at) => (shown(at) ? one[measure][unit]! : 0));
        flame.show(weights, unit === 0 ? size : (n) => plural(n, 'allocation'));
        table.show(sitesOf(view, held, shown), measure === sorted ? undefined : measure);
        sorted = measure;
        about.textContent = sentence(view, held, measure);
        // No command reports tensors at their peak.
        const analysis = measure === 'peak' && name === 'sites' ? 'watermark' : 'leakage';
        const range = `${options}${rangeOptions(view)}${host ? ' --host' : ''}`;
        command.show(`gpuprobe report ${quoted(view.run.file)} --analysis ${analysis}${range} --top all`);
    };
    const hosts = h('input', { type: 'checkbox', onchange: () => ((host = hosts.checked), update()) });
    const tools = h(
        'div',
        { class: 'tools' },
        choice('Memory', MEASURES, measure, (one) => ((measure = one), update())),
        choice(
            'in',
            Object.entries(['bytes', 'allocations']),
            '0',
            (one) => ((unit = Number(one)), update()),
        ),
        held.paths.some((one) => one.host) && h('label', {}, hosts, ' host memory too'),
    );
    view.on(update);
    return h('div', {}, tools, about, flame.element, table.element, command.element);
}

/** Live memory, unless all processes have ended: then what they never freed, or the peak if that is little without a leak. */
function firstMeasure(view: View, held: Held): Measure {
    const gpu = view.sumsOf(held);
    const least = leaks(view) ? 1 : gpu.peak[0] / 10;
    return (['live', 'never_freed'] as const).find((name) => gpu[name][0] >= least) ?? 'peak';
}

/** Which memory is shown, of what time. */
function sentence(view: View, held: Held, measure: Measure): string {
    const end = view.to === view.bins ? 'the end of the run' : moment(view.edges[view.to]!, view.span);
    const [ns, bytes] = held.bins[highestBin(held, view.from, view.to)]!;
    return {
        live: `Live at ${end}.`,
        peak: `Live at the peak of the range: ${size(bytes)} at ${moment(ns, view.span)}.`,
        allocated: 'Allocated in the range, freed or not.',
        freed: '',
        never_freed: `Live at ${end}, or when its process ended.`,
    }[measure];
}

/** Call sites that have anything in the range. */
function sitesOf(view: View, held: Held, shown: (path: number) => boolean): Site[] {
    const figures = view.figuresOf(held);
    const sites = new Map<string, number[]>();
    held.paths.forEach((path, at) => {
        if (!shown(at)) return;
        const key = `${path.pid} ${siteOf(path)}`;
        if (!sites.has(key)) sites.set(key, []);
        sites.get(key)!.push(at);
    });
    const all = [...sites.values()].map((paths): Site => {
        const own = paths.map((at) => held.paths[at]!);
        const pids = [...new Set(own.map(({ pid }) => pid))];
        const process = pids.length === 1 ? view.process(pids[0]!) : plural(pids.length, 'process');
        const kinds = [...new Set(own.map(({ kind }) => kind))].join(', ');
        const label = labelOf(held, own[0]!);
        return {
            id: siteOf(own[0]!),
            label,
            about: `${process} · ${kinds}`,
            paths,
            sums: addFigures(paths.map((at) => figures[at]!)),
        };
    });
    return all.filter(({ sums }) => Object.values(sums).some(([bytes, n]) => bytes !== 0 || n !== 0));
}

function siteTable(view: View, held: Held, name: string, measure: () => Measure): Table<Site> {
    const amount = (key: Measure, title: string, hint: string) =>
        number<Site>(key, title, ({ sums }) => sums[key][0], size, {
            hint,
            count: ({ sums }) => sums[key][1],
            total: () => true,
        });
    return new Table<Site>({
        name,
        caption: 'Call sites in the range',
        columns: [
            text(
                'id',
                '#',
                ({ id }) => id,
                (id, { label }) => (id === label ? '–' : id),
            ),
            text(
                'label',
                'Call site',
                ({ label }) => label,
                (label, { about }) => named(label, about),
            ),
            amount('live', 'Live', 'live at the end of the range'),
            number('allocations', 'Allocations', ({ sums }) => sums.live[1], count, {
                hint: 'live at the end of the range',
                total: () => true,
            }),
            amount('peak', 'At the peak', 'live at the peak of the range'),
            amount('allocated', 'Allocated', 'allocated in the range'),
            amount('freed', 'Freed', 'freed in the range'),
            amount(
                'never_freed',
                'Never freed',
                'live at the end of the range, or held at the end of the process',
            ),
        ],
        sort: measure(),
        id: ({ id }) => id,
        detail: (site) => pathsOf(view, held, site, measure()),
    });
}

/** The call paths of a site, those first that have most of what is looked at. */
function pathsOf(view: View, held: Held, site: Site, measure: Measure): HTMLElement {
    const figures = view.figuresOf(held);
    const bytes = (at: number): number => figures[at]![measure][0];
    const sorted = [...site.paths].sort((a, b) => bytes(b) - bytes(a));
    const shown = sorted.slice(0, SHOWN).map((at) => {
        const { function: api, kind, owner, stack, pid } = held.paths[at]!;
        const what = [api, kind, owner && `memory of ${owner}`, view.process(pid)].filter((part) => part);
        const head = `${what.join(', ')}: ${size(bytes(at))}`;
        return h('div', {}, note(head), frames(view, stack));
    });
    const more = sorted.length - shown.length;
    return h('div', {}, ...shown, more > 0 && note(`and ${plural(more, 'more call path')}`));
}

/** A call path, innermost frame first. */
export function frames(view: View, stack: number[]): HTMLElement {
    if (stack.length === 0) return note('call path unknown');
    const items = stack.map((number) => {
        const frame = view.frame(number);
        const place = ` ${frame[5] ? 'inlined ' : ''}${framePlace(frame)}`;
        return h('li', { class: frame[4] && 'python' }, frameText(frame), h('small', {}, place));
    });
    return h('ol', {}, ...items);
}
