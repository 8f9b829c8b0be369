import './style.css';
import type { ReportDocument, Run } from './document';
import { type Child, fill, h, note, uniqueId } from './dom';
import { growth } from './sections/diff';
import { holders } from './sections/holders';
import { overview } from './sections/overview';
import { rangeBar } from './sections/range';
import { tensors } from './sections/tensors';
import { timeline } from './sections/timeline';
import { verdicts } from './sections/verdicts';
import { work } from './sections/work';
import { type Scale, View, leaks } from './view';

type Builder = (view: View) => HTMLElement | null;
const OVERVIEW: [string, Builder] = ['Overview', overview];
const VERDICTS: [string, Builder] = ['Verdicts', verdicts];
/** Sections that the range filters. */
const FILTERED: [string, Builder][] = [
    ['Memory over time', timeline],
    ['Who holds it', holders],
    ['Tensors', tensors],
    ['Kernels and copies', work],
];

/** The document: base64 of JSON compressed with gzip. */
async function load(): Promise<ReportDocument> {
    const raw = atob(document.getElementById('data')!.textContent!.trim());
    const bytes = Uint8Array.from(raw, (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
    const loaded = (await new Response(stream).json()) as ReportDocument;
    if (loaded.version !== 2) throw new Error(`the data are of version ${loaded.version}, not 2`);
    return loaded;
}

/** Extents of all runs together, so that two runs are drawn to the same scale. */
function scaleOf(runs: Run[]): Scale {
    const most = (values: number[]): number => values.reduce((top, value) => Math.max(top, value), 0);
    const edges = runs.flatMap((run) => run.edges_ns);
    const fromNs = edges.reduce((least, ns) => Math.min(least, ns), 0);
    const memory = runs.flatMap(({ memory }) => [
        ...(memory?.bins.map(([, bytes]) => bytes) ?? []),
        ...(memory?.overlay.flatMap(({ points }) => points.map(([, bytes]) => bytes)) ?? []),
    ]);
    const tensors = runs.flatMap((run) => run.tensors);
    const handed = tensors.flatMap(({ bins, reserved }) => [...reserved, ...bins.map(([, bytes]) => bytes)]);
    return {
        fromNs,
        toNs: Math.max(most(edges), fromNs + 1000),
        bytes: most(memory),
        tensorBytes: most(handed),
        colors: new Map(),
    };
}

/** The parts of all runs under one heading, side by side if there are two. */
function section(title: string, parts: (HTMLElement | null)[]): HTMLElement | null {
    if (parts.every((part) => part === null)) return null;
    const id = uniqueId('section');
    const cells = parts.map((part) => h('div', { class: 'cell' }, part ?? note('none in this run')));
    return h(
        'section',
        { 'aria-labelledby': id },
        h('h2', { id }, title),
        h('div', { class: 'runs' }, ...cells),
    );
}

function render(found: ReportDocument, page: HTMLElement): void {
    const pair = found.runs.length > 1;
    const names = pair ? ['before', 'after'] : [''];
    const scale = scaleOf(found.runs);
    const views = found.runs.map((run, at) => new View(run, scale, names[at]!));
    const build = (all: [string, Builder][]): Child[] =>
        all.map(([title, make]) => section(title, views.map(make)));
    const grown = growth(found);
    const bars = views.map(rangeBar).filter((bar) => bar !== null);
    const parts = [
        grown && section('Growth from before to after', [grown]),
        ...build(views.some(leaks) ? [VERDICTS, OVERVIEW] : [OVERVIEW, VERDICTS]),
        bars.length > 0 && h('div', { class: 'ranges runs' }, ...bars),
        ...build(FILTERED),
    ].filter((part) => part instanceof HTMLElement);
    const headings = parts.flatMap((part) => part.querySelector('h2') ?? []);
    const runs = found.runs.map(({ title, file }, at) =>
        h(
            'p',
            { class: 'run' },
            pair && h('span', { class: 'badge' }, names[at]!),
            h('strong', {}, title ?? file),
            h('span', { class: 'note' }, title ? ` ${file}` : ''),
        ),
    );
    page.classList.toggle('pair', pair);
    fill(
        page,
        h('header', {}, h('h1', {}, `gpuprobe report ${found.gpuprobe}`), ...runs),
        h(
            'nav',
            { 'aria-label': 'sections' },
            ...headings.map((one) => h('a', { href: `#${one.id}` }, one.textContent)),
        ),
        h('main', {}, ...parts),
    );
}

async function start(): Promise<void> {
    const page = document.getElementById('page')!;
    try {
        const found = await load();
        document.title = `gpuprobe report: ${found.runs.map(({ file }) => file).join(' and ')}`;
        render(found, page);
        document.documentElement.dataset.ready = 'true';
    } catch (error) {
        fill(page, h('p', { class: 'loading', role: 'alert' }, `cannot show the report: ${String(error)}`));
        document.documentElement.dataset.ready = 'false';
        console.error(error);
    }
}

void start();
