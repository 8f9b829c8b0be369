import { highest } from './charts/stacked';
import type { ReportDocument, Run } from './document';
import { fill, h, uniqueId } from './dom';
import { load } from './load';
import { diffTable } from './sections/diff';
import { holders } from './sections/holders';
import { overview } from './sections/overview';
import { rangeBar } from './sections/range';
import type { Builder } from './sections/section';
import { tensors } from './sections/tensors';
import { memoryTop, timeline } from './sections/timeline';
import { verdicts } from './sections/verdicts';
import { work } from './sections/work';
import { startTheme, themeButton } from './theme';
import { type Scale, View } from './view';

const SECTIONS: [string, Builder][] = [
    ['Overview', overview],
    ['Verdicts', verdicts],
    ['Memory over time', timeline],
    ['Who holds it', holders],
    ['Tensors', tensors],
    ['Kernels and copies', work],
];
/** Above this section is the range, which filters what is below. */
const FILTERED_FROM = 'Memory over time';

/** Extents of all runs together, so that two runs are drawn to the same scale. */
function scaleOf(runs: Run[]): Scale {
    const edges = runs.filter((run) => run.edges_ns.length > 1).map((run) => run.edges_ns);
    const from = Math.min(...edges.map((one) => one[0]!));
    const to = Math.max(...edges.map((one) => one[one.length - 1]!));
    const bytes = Math.max(0, ...runs.map((run) => memoryTop(run.memory)));
    const lines = runs.flatMap((run) => run.pytorch.map((one) => (one.timeline ? highest(one.timeline) : 0)));
    const tops = { bytes, tensorBytes: Math.max(0, ...lines) };
    return edges.length
        ? { fromNs: from, toNs: Math.max(to, from + 1000), ...tops }
        : { fromNs: 0, toNs: 1e9, ...tops };
}

/** The parts of all runs under one heading, side by side if there are two. */
function section(title: string, parts: (HTMLElement | null)[]): HTMLElement | null {
    if (parts.every((part) => part === null)) return null;
    const id = uniqueId('section');
    const none = (): HTMLElement => h('p', { class: 'note' }, 'nothing of this in the run');
    const cells = parts.map((part) => h('div', { class: 'cell' }, part ?? none()));
    const heading = h('h2', { id }, title);
    return h('section', { 'aria-labelledby': id }, heading, h('div', { class: 'runs' }, ...cells));
}

function header(found: ReportDocument): HTMLElement {
    const names = ['before', 'after'];
    const runs = found.runs.map((run, index) =>
        h(
            'p',
            { class: 'run' },
            found.runs.length > 1 ? h('span', { class: 'badge' }, names[index]!) : null,
            h('strong', {}, run.title ?? run.file),
            h('span', { class: 'note' }, run.title ? ` ${run.file}` : ''),
        ),
    );
    const version = h('span', { class: 'note' }, ` ${found.gpuprobe}`);
    return h(
        'header',
        {},
        h('div', { class: 'bar' }, h('h1', {}, 'gpuprobe report', version), themeButton()),
        ...runs,
    );
}

function render(found: ReportDocument, page: HTMLElement): void {
    const scale = scaleOf(found.runs);
    const pair = found.runs.length > 1;
    const views = found.runs.map((run, at) => new View(run, scale, pair ? ['before', 'after'][at]! : ''));
    const parts: (HTMLElement | null)[] = [];
    const grown = diffTable(found);
    parts.push(grown && section('Growth from before to after', [grown]));
    for (const [title, build] of SECTIONS) {
        if (title === FILTERED_FROM) {
            const bars = views.map(rangeBar);
            if (bars.some((bar) => bar))
                parts.push(h('div', { class: 'ranges runs' }, ...bars.filter((bar) => bar !== null)));
        }
        parts.push(section(title, views.map(build)));
    }
    const shown = parts.filter((part) => part !== null);
    const links = shown.flatMap((part) => {
        const heading = part.querySelector('h2');
        return heading ? [h('a', { href: `#${heading.id}` }, heading.textContent)] : [];
    });
    const nav = h('nav', { 'aria-label': 'sections' }, ...links);
    page.classList.toggle('pair', pair);
    fill(page, header(found), nav, h('main', {}, ...shown));
}

async function start(): Promise<void> {
    const page = document.getElementById('page')!;
    startTheme();
    try {
        const found = await load();
        const files = found.runs.map((run) => run.file).join(' and ');
        document.title = `gpuprobe report: ${files}`;
        render(found, page);
        document.documentElement.dataset.ready = 'true';
    } catch (error) {
        const reason = error instanceof Error ? error.message : String(error);
        fill(page, h('p', { class: 'loading', role: 'alert' }, `cannot show the report: ${reason}`));
        document.documentElement.dataset.ready = 'false';
        console.error(error);
    }
}

void start();
