// Every number shown equals one that is computed from the document in another way.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { showAll, tableValues } from './browser.mjs';
import * as oracle from './oracle.mjs';
import { brush, scene } from './scene.mjs';
import { makeDocument, makeRun } from './synthetic.mjs';

const run = makeRun({ seed: 3, paths: 240, changes: 4000 });
const BINS = run.edges_ns.length - 1;
const RANGES = [
    [0, BINS],
    [0, 20],
    [11, 12],
    [17, 49],
    [40, BINS],
];
const MEASURES = ['live', 'peak', 'allocated', 'freed', 'never_freed'];
const pages = scene();

/** Checks the page for each range. */
async function eachRange(check) {
    const { page, seen, close } = await pages.show(makeDocument(run));
    for (const [from, to] of RANGES) {
        await brush(page, run, from, to);
        await check(page, from, to);
    }
    assert.deepEqual(seen.errors, []);
    await close();
}

for (const [name, held] of [
    ['sites', run.memory],
    ['tensor-sites', run.tensors[0]],
]) {
    test(`${name} have the sums of the range`, async () => {
        await eachRange(async (page, from, to) => {
            const expected = oracle.sites(held, from, to);
            await showAll(page, name);
            const shown = await tableValues(page, name);
            const pick = (row) => Object.fromEntries(MEASURES.map((name) => [name, row[name]]));
            const rows = Object.fromEntries(Object.entries(shown.rows).map(([id, row]) => [id, pick(row)]));
            assert.deepEqual(rows, expected.rows);
            assert.deepEqual(pick(shown.total), expected.total);
            assert.equal(shown.total.allocations, expected.total.live[1]);
        });
    });
}

test('host memory is left out unless it is asked for', async () => {
    const { page, close } = await pages.show(makeDocument(run));
    const without = await tableValues(page, 'sites');
    await page.getByLabel('host memory too').check();
    const all = await tableValues(page, 'sites');
    assert.deepEqual(all.total.allocated, oracle.sites(run.memory, 0, BINS, true).total.allocated);
    assert.ok(all.total.allocated[0] > without.total.allocated[0]);
    assert.equal(await page.locator('[data-command*="--host"]').count(), 1);
    await close();
});

test('the peak of the range is the highest bin', async () => {
    await eachRange(async (page, from, to) => {
        const peak = oracle.peakBin(run.memory, from, to);
        const shown = await page
            .locator('.range')
            .evaluate((bar) => [bar.dataset.peakNs, bar.dataset.peakBytes]);
        assert.deepEqual(shown.map(Number), [peak.ns, peak.bytes]);
        const { total } = await tableValues(page, 'sites');
        assert.equal(total.peak[0], peak.bytes, 'call sites at the peak add up to it');
    });
});

/** The frames that are drawn, once one of them, of this name or else the first, has the whole width, and the first the
 * value `all` if it is given: path of names, value, and part of the width. */
async function drawn(page, { all, name }) {
    // A change of the width is drawn by a timer.
    await page.waitForFunction(
        ({ all, name }) => {
            const frames = [...document.querySelector('.flame').querySelectorAll('g.frame')];
            const first = frames.find((frame) => !frame.__data__.parent);
            const wide = name ? frames.find((frame) => frame.getAttribute('name') === name) : first;
            const width = wide?.querySelector('rect').getAttribute('width');
            const whole = wide?.ownerSVGElement.getAttribute('width');
            return width / whole > 0.999 && (all === undefined || first.__data__.value === all);
        },
        { all, name },
    );
    return page
        .locator('.flame')
        .first()
        .locator('g.frame')
        .evaluateAll((all) =>
            all.map((frame) => {
                const own = frame.__data__;
                const names = own.ancestors().map((node) => node.data.name);
                const width = frame.querySelector('rect').getAttribute('width');
                const whole = frame.ownerSVGElement.getAttribute('width');
                return [JSON.stringify(names.reverse().slice(1)), own.data.value, width / whole];
            }),
        );
}

for (const measure of ['live', 'peak', 'allocated', 'never_freed']) {
    test(`the flame graph has the sums of ${measure}, each as wide as its share`, async () => {
        const { page, close } = await pages.show(makeDocument(run));
        await brush(page, run, 17, 49);
        await page.getByLabel('Memory', { exact: true }).first().selectOption(measure);
        for (const [column, unit] of ['bytes', 'allocations'].entries()) {
            await page.getByLabel('in', { exact: true }).first().selectOption(unit);
            const expected = oracle.flame(run, 17, 49, measure, column);
            const all = expected.get('[]');
            const frames = await drawn(page, { all });
            for (const [path, value, part] of frames) {
                assert.equal(value, expected.get(path), path);
                assert.ok(Math.abs(part - value / all) < 1e-6, path);
            }
            const wide = [...expected].filter(([, value]) => value / all > 0.005);
            const paths = new Set(frames.map(([path]) => path));
            assert.ok(wide.length > 50 && wide.every(([path]) => paths.has(path)));
        }
        await close();
    });
}

test('a click on a frame fills the width with it', async () => {
    const { page, close } = await pages.show(makeDocument(run));
    const frame = page.locator('.flame').first().locator('g.frame').nth(3);
    const name = await frame.getAttribute('name');
    await frame.click();
    const [, , part] = (await drawn(page, { name })).find(([path]) => JSON.parse(path).at(-1) === name);
    assert.ok(part > 0.999, `${part}`);
    await close();
});

test('a search tells the share that matches', async () => {
    const { page, seen, close } = await pages.show(makeDocument(run));
    for (const wanted of ['train_3', 'op_1<', 'cudaMallocAsync', 'nothing has (this name']) {
        await page.getByLabel('Search').first().fill(wanted);
        const shown = await page.locator('output').first().getAttribute('data-matched');
        assert.equal(Number(shown), oracle.searched(run, 0, BINS, 'live', wanted), wanted);
    }
    assert.deepEqual(seen.errors, []);
    await close();
});

const GROUPS = {
    kind: ({ kind }) => kind,
    'call site': ({ pid, site }) => `#${site} ${run.memory.sites[`${pid}:${site}`]}`,
    owner: ({ owner }) => owner ?? 'unknown',
};

test('the timeline has the values at the peak and at the end of the range', async () => {
    await eachRange(async (page, from, to) => {
        for (const [name, labelOf] of Object.entries(GROUPS)) {
            await page.getByLabel('Grouped by').selectOption(name);
            const gpu = (path) => (path.host ? null : labelOf(path));
            const { bin, bytes } = oracle.peakBin(run.memory, from, to);
            const top = oracle.areas(run.memory, bin, gpu);
            const end = oracle.leftBy(run.memory, from, to, gpu);
            const { rows } = await tableValues(page, 'memory');
            const known = Object.keys(rows).filter((label) => label in top);
            assert.ok(known.length >= 3);
            for (const label of known) {
                const { peak, end: last } = rows[label];
                assert.deepEqual([peak, last], [top[label], end[label]], label);
            }
            const left = Object.values(end).reduce((sum, at) => sum + at, 0);
            assert.deepEqual([rows.total.peak, rows.total.end], [bytes, left]);
            const rest = rows['all others']?.peak ?? 0;
            assert.equal(
                known.reduce((sum, label) => sum + rows[label].peak, rest),
                bytes,
            );
            const highest = Math.max(...run.memory.overlay[0].points.map(([, one]) => one));
            assert.equal(rows['nvidia-smi GPU 0'].peak, highest);
        }
    });
});

test('the areas drawn are those of the legend, at their heights', async () => {
    const { page, close } = await pages.show(makeDocument(run));
    const top = Math.max(...run.memory.overlay[0].points.map(([, bytes]) => bytes)) * 1.08;
    let seen = 0;
    for (const name of Object.keys(GROUPS)) {
        await page.getByLabel('Grouped by').selectOption(name);
        const plot = await page.locator('[data-chart="memory"] .u-over').boundingBox();
        for (const bin of [9, 31, 50]) {
            // Between the highest total of the bin and its end.
            const part = (run.edges_ns[bin] + 0.7 * (run.edges_ns[1] - run.edges_ns[0])) / run.edges_ns[BINS];
            await page.mouse.move(plot.x + part * plot.width, plot.y + 9);
            await brush(page, run, bin, bin + 1);
            const { rows } = await tableValues(page, 'memory');
            await brush(page, run, 0, BINS);
            const areas = Object.entries(rows).filter(([label]) => !/total|nvidia/.test(label));
            const values = areas.reverse().map(([label, { peak }]) => [label, peak]);
            const shown = await areaColors(page, part, top, values);
            seen += shown.length;
            for (const { label, color, expected } of shown)
                assert.deepEqual(color, expected, `${label} in bin ${bin}`);
        }
    }
    assert.ok(seen >= 20, `only ${seen} areas are high enough`);
    await close();
});

/** The color in the middle of each area of some height, at a part of the width, and that of the legend. */
const areaColors = (page, part, top, values) =>
    page.evaluate(
        async ([x, most, areas]) => {
            await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
            const chart = document.querySelector('[data-chart="memory"]');
            const canvas = chart.querySelector('canvas');
            const ctx = canvas.getContext('2d');
            const own = canvas.getBoundingClientRect();
            const plot = chart.querySelector('.u-over').getBoundingClientRect();
            const legend = document.querySelector('table[data-table="memory"]');
            const found = [];
            let below = 0;
            for (const [label, bytes] of areas) {
                const height = (bytes / most) * plot.height;
                const middle = plot.bottom - ((below + bytes / 2) / most) * plot.height;
                below += bytes;
                if (height < 4) continue;
                const at = [plot.left - own.left + x * plot.width, middle - own.top].map(
                    (one) => one * devicePixelRatio,
                );
                const [r, g, b] = ctx.getImageData(Math.round(at[0]), Math.round(at[1]), 1, 1).data;
                const row = [...legend.tBodies[0].rows].find((one) => one.dataset.id === label);
                const expected = getComputedStyle(row.querySelector('.swatch')).backgroundColor;
                found.push({ label, color: `rgb(${r}, ${g}, ${b})`, expected });
            }
            return found;
        },
        [part, top, values],
    );

test('kernels and copies have the sums of the range, and those of the whole run where no more is known', async () => {
    await eachRange(async (page, from, to) => {
        const kernels = await tableValues(page, 'kernels');
        for (const { pid, name, launches, changes } of run.kernels) {
            const [runs, ns] = changes ? oracle.flat(changes, 3, from, to) : [launches, undefined];
            const row = kernels.rows[`${pid} ${name}`];
            assert.deepEqual([row.launches, row.total], [runs, ns], name);
        }
        const copies = await tableValues(page, 'copies');
        for (const { pid, direction, mode, changes } of run.copies) {
            const row = copies.rows[`${pid} ${direction} ${mode}`];
            assert.deepEqual([row.copies, row.bytes, row.time], oracle.flat(changes, 4, from, to));
        }
        const text = await page.locator('.cell').last().textContent();
        assert.match(text, /1 kernel with the launches of the whole run/);
    });
});

test('call sites of copies are those of the document, with their advice', async () => {
    const { page, close } = await pages.show(makeDocument(run));
    const { rows } = await tableValues(page, 'copy-sites');
    for (const one of run.copy_sites) {
        const row = rows[[one.pid, one.label, one.api, one.direction, one.host_memory].join(' ')];
        const shown = [row.copies, row.bytes, row.waits, row.time, row.advice];
        assert.deepEqual(shown, [one.calls, one.bytes, one.waits, one.seconds * 1e9, one.advice ?? '']);
    }
    await close();
});

test('kernels have their short names, and the whole one at the mouse', async () => {
    const { page, close } = await pages.show(makeDocument(run));
    const { pid, name, short } = run.kernels[4];
    const shown = page.locator(`tr[data-id="${pid} ${name}"] .name`);
    assert.equal(await shown.textContent(), `${short}python (4711)`);
    assert.equal(await shown.getAttribute('title'), name);
    await close();
});

test('busy time of GPUs is that of the range', async () => {
    await eachRange(async (page, from, to) => {
        const { rows } = await tableValues(page, 'gpus');
        const sum = (name) => run.gpus[0].bins[name].slice(from, to).reduce((a, b) => a + b);
        for (const name of ['kernels', 'copies', 'sets', 'graphs', 'busy'])
            assert.equal(rows[0][name], sum(name), name);
        assert.equal(rows[0].idle, run.edges_ns[to] - run.edges_ns[from] - sum('busy'));
        assert.equal(rows[0].gaps, run.gpus[0].gaps);
    });
});

test('the timeline of tensors has the values of the range, and what is reserved', async () => {
    const [held] = run.tensors;
    await eachRange(async (page, from, to) => {
        const chart = (await tableValues(page, 'tensors')).rows;
        const { bin, bytes } = oracle.peakBin(held, from, to);
        const { total } = oracle.sites(held, from, to);
        assert.deepEqual([chart.total.peak, chart.total.end], [bytes, total.never_freed[0]]);
        assert.deepEqual(
            [chart.reserved.peak, chart.reserved.end],
            [held.reserved[bin], held.reserved[to - 1]],
        );
    });
});

test('the memory map has the blocks of the document', async () => {
    const { page, close } = await pages.show(makeDocument(run));
    const [{ segments, paths, sites, report }] = run.tensors;
    const { rows } = await tableValues(page, 'segments');
    assert.equal(Object.keys(rows).length, segments.length);
    let pointed = 0;
    for (const { address, bytes, blocks } of segments) {
        const sizes = (free) => blocks.filter((_, at) => at % 4 === 1 && (blocks[at + 1] === -2) === free);
        const used = sizes(false).reduce((a, b) => a + b, 0);
        const { map, ...row } = rows[address];
        assert.deepEqual(row, {
            address: Number(address),
            bytes,
            used,
            largest_free: Math.max(0, ...sizes(true)),
            blocks: sizes(false).length,
        });
        const bar = page.locator(`tr[data-id="${address}"] canvas`);
        const { width, height } = await bar.boundingBox();
        for (let at = 0; at < blocks.length && pointed < 40; at += 4) {
            const [offset, length, path] = blocks.slice(at, at + 3);
            if ((length / bytes) * width < 6) continue;
            await bar.hover({ position: { x: ((offset + length / 2) / bytes) * width, y: height / 2 } });
            const { pid, site } = paths[path] ?? {};
            const label = `T${site} ${sites[`${pid}:${site}`]}`;
            const name = { '-3': 'freed, waiting', '-2': 'free, cached', '-1': 'unknown' }[path] ?? label;
            const title = await bar.getAttribute('title');
            assert.ok(title.startsWith(name), `${title}: ${name}`);
            pointed += 1;
        }
    }
    assert.ok(pointed > 30, `${pointed} blocks`);
    const reserved = page.locator('[data-figure="reserved_bytes"]');
    assert.equal(await reserved.getAttribute('data-value'), String(report.reserved_bytes));
    await close();
});

test('processes and verdicts are those of the document', async () => {
    const { page, close } = await pages.show(makeDocument(run));
    const { rows } = await tableValues(page, 'processes');
    for (const one of run.processes) {
        for (const key of ['run_ns', 'peak_bytes', 'never_freed_bytes', 'launches', 'copies', 'copied_bytes'])
            assert.equal(rows[one.pid][key], one[key], key);
    }
    const grades = await page
        .locator('[data-grade]')
        .evaluateAll((all) => all.map((one) => one.dataset.grade));
    assert.deepEqual(grades, ['LEAK', 'warn', 'ok', 'note', 'too early']);
    const early = await page.locator('[data-grade="too early"]').textContent();
    assert.equal(early, 'too early45 contexts made; a verdict needs about 9s more');
    assert.equal(await page.locator('[data-grade="too early"] .badge').getAttribute('class'), 'badge ');
    await close();
});

test('the script for comparisons prints what the page shows', async () => {
    const { close } = await pages.show(makeDocument(run));
    await close();
    const script = fileURLToPath(new URL('figures.mjs', import.meta.url));
    const args = [script, pages.last(), '--from-edge', '17', '--to-edge', '49'];
    const { stdout } = await promisify(execFile)(process.execPath, args);
    const figures = JSON.parse(stdout);
    const { total, rows } = oracle.sites(run.memory, 17, 49);
    assert.deepEqual([figures.never_freed_bytes, figures.never_freed_allocations], total.never_freed);
    assert.deepEqual([figures.at_peak_bytes, figures.at_peak_allocations], total.peak);
    assert.equal(figures.peak_bytes, oracle.peakBin(run.memory, 17, 49).bytes);
    assert.equal(Object.keys(figures.sites).length, Object.keys(rows).length);
    assert.deepEqual([figures.violations, figures.requests, figures.errors], [0, 0, []]);
    const range = `--from ${run.edges_ns[17]}ns --to ${run.edges_ns[49] - 1}ns`;
    assert.ok(figures.commands.includes(`gpuprobe report run.sqlite --analysis leakage ${range} --top all`));
});
