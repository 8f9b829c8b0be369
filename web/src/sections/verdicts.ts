import { fixedCommand, quoted } from '../command';
import type { Verdict } from '../document';
import { details, h } from '../dom';
import { plural } from '../format';
import type { View } from '../view';
import { frames } from './holders';

/** Call sites that need no attention, and are shown at once. */
const SHOWN = 5;

/** The verdicts of `explain`, by process, in its order: the gravest first, then other call sites. */
export function verdicts(view: View): HTMLElement | null {
    const all = view.run.explain?.verdicts ?? [];
    if (all.length === 0) return null;
    const groups = [...new Set(all.map(({ pid }) => pid))].map((pid) => {
        const own = all.filter((one) => one.pid === pid);
        const bad = own.filter(({ grade }) => grade === 'LEAK' || grade === 'warn');
        const sites = own.filter((one) => !bad.includes(one) && one.site !== null);
        const rest = own.filter((one) => !bad.includes(one) && !sites.includes(one));
        const list = (some: Verdict[]): HTMLElement =>
            h('ul', { class: 'verdicts' }, ...some.map((one) => item(view, one)));
        const more = sites.length - SHOWN;
        return h(
            'div',
            {},
            h('h3', {}, view.process(pid)),
            list([...bad, ...sites.slice(0, SHOWN)]),
            more > 0 && details(plural(more, 'more call site'), list(sites.slice(SHOWN))),
            rest.length > 0 && list(rest),
        );
    });
    return h('div', {}, ...groups, fixedCommand(`gpuprobe explain ${quoted(view.run.file)}`));
}

function item(view: View, one: Verdict): HTMLElement {
    const { grade, verdict, where, site, tensors_of_device: device, evidence, advice } = one;
    const number = site === null ? '' : ` ${device === null ? '#' : 'T'}${site}`;
    const [first = plural(one.allocations, 'allocation'), ...more] = evidence;
    const bad = grade === 'LEAK' || grade === 'warn';
    const word = verdict === grade ? '' : verdict;
    const { memory, tensors } = view.run;
    const held = device === null ? memory : tensors.find((of) => of.pid === one.pid && of.device === device);
    const path = held?.paths.find((path) => path.pid === one.pid && path.site === site && site !== null);
    return h(
        'li',
        { 'data-grade': grade, 'data-verdict': verdict },
        h(
            'span',
            { class: `badge ${{ LEAK: 'bad', warn: 'warn', 'too early': '', ok: 'good', note: '' }[grade]}` },
            grade,
        ),
        h(
            'div',
            {},
            h('p', {}, h('strong', {}, word), where && ` ${where}`, h('span', { class: 'note' }, number)),
            h('p', {}, first),
            ...more.map((text) => h('p', { class: 'note' }, text)),
            bad && advice && h('p', {}, `→ ${advice}`),
            bad && path && details('call stack', frames(view, path.stack)),
        ),
    );
}
