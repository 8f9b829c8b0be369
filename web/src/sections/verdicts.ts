import { commandLine, quoted } from '../command';
import type { Verdict } from '../document';
import { h } from '../dom';
import { plural } from '../format';
import type { View } from '../view';

type Grade = 'LEAK' | 'warn' | 'ok' | 'note';

const LEAKS = ['growing', 'growing per cycle', 'contexts left behind'];
const WARNINGS = ['freed late', 'fragmentation', 'out of memory', 'idle context', 'never freed at exit'];
const FINE = ['plateau', 'one-off', 'cache'];

/** The word that `gpuprobe explain` puts in front of a verdict. */
export function grade({ verdict, confidence, site }: Verdict): Grade {
    const sure = confidence === 'certain' || confidence === 'likely';
    if (LEAKS.includes(verdict)) return sure ? 'LEAK' : 'warn';
    if (WARNINGS.includes(verdict)) return 'warn';
    return FINE.includes(verdict) && (site !== null || verdict === 'cache') ? 'ok' : 'note';
}

/** The verdicts of `explain`, by process, the gravest first. */
export function verdicts(view: View): HTMLElement | null {
    const all = view.run.explain?.verdicts ?? [];
    if (all.length === 0) return null;
    const pids = [...new Set(all.map((one) => one.pid))];
    const groups = pids.map((pid) => {
        const items = all.filter((one) => one.pid === pid).map(item);
        return h('div', {}, h('h3', {}, view.process(pid)), h('ul', { class: 'verdicts' }, ...items));
    });
    const command = commandLine();
    command.show(`gpuprobe explain ${quoted(view.run.file)}`);
    return h('div', {}, ...groups, command.element);
}

function item(one: Verdict): HTMLLIElement {
    const word = grade(one);
    const [first, ...more] = one.evidence;
    const number = one.site === null ? '' : ` ${one.tensors_of_device === null ? '#' : 'T'}${one.site}`;
    const unsure = ['certain', 'likely'].includes(one.confidence) ? '' : ` (${one.confidence})`;
    const evidence = more.map((text) => h('li', {}, text));
    return h(
        'li',
        { 'data-grade': word, 'data-verdict': one.verdict },
        h('span', { class: `badge ${word.toLowerCase()}` }, word),
        h(
            'div',
            {},
            h(
                'p',
                {},
                h('strong', {}, one.verdict),
                one.where ? ` ${one.where}` : '',
                h('span', { class: 'note' }, number),
            ),
            h('p', {}, (first ?? plural(one.allocations, 'allocation')) + unsure),
            evidence.length ? h('ul', { class: 'evidence' }, ...evidence) : null,
            one.advice && (word === 'LEAK' || word === 'warn')
                ? h('p', { class: 'advice' }, one.advice)
                : null,
        ),
    );
}
