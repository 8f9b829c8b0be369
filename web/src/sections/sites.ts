import type { Memory } from '../document';
import { h } from '../dom';
import { count, plural, size } from '../format';
import type { MeasureName } from '../sums';
import type { Column } from '../table/column';
import { Table } from '../table/table';
import { type View, framePlace, frameText } from '../view';

type Amount = { bytes: number; count: number };

/** A call site with the sums of its stacks over the range. */
interface Site extends Record<MeasureName, Amount> {
    id: number;
    label: string;
    process: string;
    kinds: string;
    stacks: number[];
}

const NAMES: MeasureName[] = ['live', 'peak', 'allocated', 'freed', 'never_freed'];

/** Stacks of a site that are shown; more are counted. */
const SHOWN_STACKS = 5;

/** Call sites with what they hold, sortable; each opens to its call stacks. */
export function siteTable(view: View, memory: Memory): HTMLElement {
    const table = new Table<Site>({
        name: 'sites',
        caption: 'Call sites in the range',
        columns: columns(),
        sort: 'live',
        id: (site) => String(site.id),
        detail: (site) => stacksOf(view, memory, site),
    });
    const groups = grouped(view, memory);
    let sorted: MeasureName | null = null;
    view.on(['range', 'measure'], () => {
        if (sorted !== view.measure) table.sort(view.measure);
        sorted = view.measure;
        table.show(summed(view, memory, groups));
    });
    return table.element;
}

function columns(): Column<Site>[] {
    const amount = (key: MeasureName, title: string, hint: string): Column<Site> => ({
        key,
        title,
        hint,
        value: (site) => site[key].bytes,
        data: (site) => ({ count: site[key].count }),
        cell: (site) => cell(site[key]),
        total: (sites) => {
            const sum = { bytes: 0, count: 0 };
            for (const site of sites) {
                sum.bytes += site[key].bytes;
                sum.count += site[key].count;
            }
            return { show: size(sum.bytes), value: sum.bytes, data: { count: sum.count } };
        },
    });
    const allocations: Column<Site> = {
        key: 'allocations',
        title: 'Allocations',
        hint: 'live allocations at the end of the range',
        value: (site) => site.live.count,
        cell: (site) => count(site.live.count),
        total: (sites) => {
            const sum = sites.reduce((all, site) => all + site.live.count, 0);
            return { show: count(sum), value: sum };
        },
    };
    return [
        { key: 'id', title: '#', value: (site) => site.id, cell: (site) => `#${site.id}` },
        { key: 'label', title: 'Call site', text: true, value: (site) => site.label, cell: label },
        amount('live', 'Live', 'live at the end of the range'),
        allocations,
        amount('peak', 'At the peak', 'live at the peak of the range'),
        amount('allocated', 'Allocated', 'allocated in the range'),
        amount('freed', 'Freed', 'freed in the range'),
        amount(
            'never_freed',
            'Never freed',
            'live at the end of the range or held at the end of the process',
        ),
    ];
}

const cell = ({ bytes, count: n }: Amount): Node =>
    bytes === 0 && n === 0
        ? h('span', { class: 'zero' }, '0')
        : h('span', { title: plural(n, 'allocation') }, size(bytes));

const label = (site: Site): Node =>
    h(
        'span',
        { class: 'site' },
        h('span', { title: site.label }, site.label),
        h('small', {}, `${site.process} · ${site.kinds}`),
    );

/** Numbers of the stacks of each site. */
function grouped(view: View, memory: Memory): Site[] {
    const labels = new Map(memory.sites.map((site) => [site.id, site.label]));
    const sites = new Map<number, Site>();
    const none = (): Amount => ({ bytes: 0, count: 0 });
    memory.stacks.forEach((stack, index) => {
        let site = sites.get(stack.site);
        if (!site) {
            const sums = {
                live: none(),
                peak: none(),
                allocated: none(),
                freed: none(),
                never_freed: none(),
            };
            const name = labels.get(stack.site) ?? stack.function;
            site = { id: stack.site, label: name, process: '', kinds: '', stacks: [], ...sums };
            sites.set(stack.site, site);
        }
        site.stacks.push(index);
    });
    for (const site of sites.values()) {
        const stacks = site.stacks.map((index) => memory.stacks[index]!);
        const pids = [...new Set(stacks.map((one) => one.pid))];
        site.process = pids.length === 1 ? view.process(pids[0]!) : plural(pids.length, 'process');
        site.kinds = [...new Set(stacks.map((one) => one.kind))].join(', ');
    }
    return [...sites.values()];
}

/** Sites that have anything in the range, without host memory unless it is asked for. */
function summed(view: View, memory: Memory, groups: Site[]): Site[] {
    const sums = view.sums!;
    const sites = groups.map((group) => {
        const stacks = group.stacks.filter((index) => view.host || !memory.stacks[index]!.host);
        const site = { ...group, stacks };
        for (const name of NAMES) {
            const of = sums[name];
            const amount = { bytes: 0, count: 0 };
            for (const index of stacks) {
                amount.bytes += of.bytes[index]!;
                amount.count += of.count[index]!;
            }
            site[name] = amount;
        }
        return site;
    });
    return sites.filter((site) => NAMES.some((name) => site[name].count !== 0 || site[name].bytes !== 0));
}

/** The call stacks of a site, those first that have most of what is looked at. */
function stacksOf(view: View, memory: Memory, site: Site): HTMLElement {
    const { bytes } = view.sums![view.measure];
    const stacks = [...site.stacks].sort((a, b) => bytes[b]! - bytes[a]!);
    const shown = stacks.slice(0, SHOWN_STACKS).map((index) => {
        const { function: name, kind, owner, stack, pid } = memory.stacks[index]!;
        const of = owner ? `, memory of ${owner}` : '';
        const head = `${name}, ${kind}${of}, ${view.process(pid)}: ${size(bytes[index]!)}`;
        return h('div', {}, h('p', { class: 'note' }, head), frames(view, stack));
    });
    const rest = stacks.length - shown.length;
    const more = rest > 0 ? h('p', { class: 'note' }, `and ${plural(rest, 'more call stack')}`) : null;
    return h('div', { class: 'stacks' }, ...shown, more);
}

/** A call stack, innermost first. */
export function frames(view: View, stack: number[]): HTMLElement {
    if (stack.length === 0) return h('p', { class: 'note' }, 'call stack unknown');
    const items = stack.map((number) => {
        const frame = view.frame(number);
        const inlined = frame[5] ? h('small', {}, ' inlined') : null;
        const place = h('small', {}, ` ${framePlace(frame)}`);
        return h('li', { class: frame[4] ? 'python' : 'native' }, frameText(frame), inlined, place);
    });
    return h('ol', { class: 'stack' }, ...items);
}
