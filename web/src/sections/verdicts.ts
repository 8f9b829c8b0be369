import { commandLine, quoted } from '../command';
import type { Verdict } from '../document';
import { details, h } from '../dom';
import { plural } from '../format';
import type { View } from '../view';

const GRADES = ['LEAK', 'warn', 'ok', 'note'] as const;
type Grade = (typeof GRADES)[number];

const LEAKS = ['growing', 'growing per cycle', 'contexts left behind'];
const WARNINGS = ['freed late', 'fragmentation', 'out of memory'];
const FINE = ['plateau', 'one-off', 'cache', 'never freed at exit'];

/** Call sites that are as they should be, and are shown at once. */
const SHOWN = 5;

/** The word that `gpuprobe explain` puts in front of a verdict. */
function grade(one: Verdict): Grade {
    const { verdict, confidence } = one;
    const told = GRADES.find((word) => word === one.grade);
    if (told) return told;
    const sure = confidence === 'certain' || confidence === 'likely';
    if (LEAKS.includes(verdict)) return sure ? 'LEAK' : 'warn';
    if (WARNINGS.includes(verdict)) return 'warn';
    return FINE.includes(verdict) ? 'ok' : 'note';
}

/** The verdicts of `explain`, by process, in its order: the gravest first, then call sites that are fine. */
export function verdicts(view: View): HTMLElement | null {
    const all = view.run.explain?.verdicts ?? [];
    if (all.length === 0) return null;
    const pids = [...new Set(all.map((one) => one.pid))];
    const groups = pids.map((pid) =>
        ofProcess(
            view.process(pid),
            all.filter((one) => one.pid === pid),
        ),
    );
    const command = commandLine();
    command.show(`gpuprobe explain ${quoted(view.run.file)}`);
    return h('div', {}, ...groups, command.element);
}

function ofProcess(name: string, all: Verdict[]): HTMLElement {
    const is =
        (...words: Grade[]) =>
        (one: Verdict): boolean =>
            words.includes(grade(one));
    const fine = all.filter((one) => is('ok')(one) && one.site !== null);
    const rest = all.filter((one) => is('ok', 'note')(one) && !fine.includes(one));
    const list = (some: Verdict[]): HTMLElement => h('ul', { class: 'verdicts' }, ...some.map(item));
    const hidden = fine.slice(SHOWN);
    const title = `${plural(hidden.length, 'more call site')}, as they should be`;
    return h(
        'div',
        {},
        h('h3', {}, name),
        list([...all.filter(is('LEAK')), ...all.filter(is('warn')), ...fine.slice(0, SHOWN)]),
        hidden.length ? details(title, list(hidden)) : null,
        rest.length ? list(rest) : null,
    );
}

function item(one: Verdict): HTMLLIElement {
    const word = grade(one);
    const [first, ...more] = one.evidence;
    const number = one.site === null ? '' : ` ${one.tensors_of_device === null ? '#' : 'T'}${one.site}`;
    const unsure = unsureOf(one);
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

/** What is missing for certainty; there will be no more of a process that has ended. */
function unsureOf({ confidence, verdict }: Verdict): string {
    if (confidence === 'certain' || confidence === 'likely') return '';
    return verdict === 'never freed at exit' ? ' (not enough data to tell more)' : ` (${confidence})`;
}
