import { fixedCommand, quoted } from '../command';
import type { Verdict } from '../document';
import { details, h } from '../dom';
import { plural } from '../format';
import type { View } from '../view';

/** Call sites that are as they should be, and are shown at once. */
const SHOWN = 5;

/** The verdicts of `explain`, by process, in its order: the gravest first, then call sites that are fine. */
export function verdicts(view: View): HTMLElement | null {
    const all = view.run.explain?.verdicts ?? [];
    if (all.length === 0) return null;
    const groups = [...new Set(all.map(({ pid }) => pid))].map((pid) => {
        const own = all.filter((one) => one.pid === pid);
        const bad = own.filter(({ grade }) => grade === 'LEAK' || grade === 'warn');
        const fine = own.filter(({ grade, site }) => grade === 'ok' && site !== null);
        const rest = own.filter((one) => !bad.includes(one) && !fine.includes(one));
        const list = (some: Verdict[]): HTMLElement => h('ul', { class: 'verdicts' }, ...some.map(item));
        const more = fine.length - SHOWN;
        return h(
            'div',
            {},
            h('h3', {}, view.process(pid)),
            list([...bad, ...fine.slice(0, SHOWN)]),
            more > 0 &&
                details(`${plural(more, 'more call site')}, as they should be`, list(fine.slice(SHOWN))),
            rest.length > 0 && list(rest),
        );
    });
    return h('div', {}, ...groups, fixedCommand(`gpuprobe explain ${quoted(view.run.file)}`));
}

function item(one: Verdict): HTMLElement {
    const { grade, verdict, where, site, tensors_of_device: device, evidence, advice } = one;
    const number = site === null ? '' : ` ${device === null ? '#' : 'T'}${site}`;
    const [first = plural(one.allocations, 'allocation'), ...more] = evidence;
    const bad = grade === 'LEAK' || grade === 'warn';
    return h(
        'li',
        { 'data-grade': grade, 'data-verdict': verdict },
        h('span', { class: `badge ${{ LEAK: 'bad', warn: 'warn', ok: 'good', note: '' }[grade]}` }, grade),
        h(
            'div',
            {},
            h('p', {}, h('strong', {}, verdict), where && ` ${where}`, h('span', { class: 'note' }, number)),
            h('p', {}, first + unsure(one)),
            ...more.map((text) => h('p', { class: 'note' }, text)),
            bad && advice && h('p', {}, `→ ${advice}`),
        ),
    );
}

/** What is missing for certainty; there will be no more of a process that has ended. */
function unsure({ confidence, verdict }: Verdict): string {
    if (confidence === 'certain' || confidence === 'likely') return '';
    return verdict === 'never freed at exit' ? ' (not enough data to tell more)' : ` (${confidence})`;
}
