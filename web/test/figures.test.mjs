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

const run = makeRun({ seed: 3, stacks: 240, changes: 4000 });
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

/** A page for each range. */
async function eachRange(check) {
    const { page, seen, close } = await pages.show(makeDocument(run));
    for (const [from, to] of RANGES) {
        await brush(page, run, from, to);
        await check(page, from, to);
    }
    assert.deepEqual(seen.errors, []);
    await close();
}

test('call sites have the sums of the range', async () => {
    await eachRange(async (page, from, to) => {
        const expected = oracle.sites(run, from, to);
        await showAll(page, 'sites');
        const shown = await tableValues(page, 'sites');
        const pick = (row) => Object.fromEntries(MEASURES.map((name) => [name, row[name]]));
        const rows = Object.fromEntries(Object.entries(shown.rows).map(([id, row]) => [id, pick(row)]));
        assert.deepEqual(rows, expected.rows);
        assert.deepEqual(pick(shown.total), expected.total);
        assert.equal(shown.total.allocations, expected.total.live[1]);
    });
});

test('host memory is left out unless it is asked for', async () => {
    const { page, close } = await pages.show(makeDocument(run));
    const without = await tableValues(page, 'sites');
    await page.getByLabel('host memory too').check();
    const all = await tableValues(page, 'sites');
    assert.deepEqual(all.total.allocated, oracle.sites(run, 0, BINS, true).total.allocated);
    assert.ok(all.total.allocated[0] > without.total.allocated[0]);
    const commands = await page
        .locator('[data-command]')
        .evaluateAll((all) => all.map((one) => one.dataset.command));
    assert.ok(commands.some((one) => one.includes('--host')));
    await close();
});

test('the peak of the range is the highest bin', async () => {
    await eachRange(async (page, from, to) => {
        const peak = oracle.peakBin(run, from, to);
        const shown = await page
            .locator('.range')
            .evaluate((bar) => [bar.dataset.peakNs, bar.dataset.peakBytes]);
        assert.deepEqual(shown.map(Number), [peak.ns, peak.bytes]);
        const { total } = await tableValues(page, 'sites');
        assert.equal(total.peak[0], peak.bytes, 'call sites at the peak add up to it');
    });
});

for (const [measure, label] of [
    ['live', 'live at the end'],
    ['peak', 'at the peak'],
    ['allocated', 'allocated'],
    ['never_freed', 'never freed'],
]) {
    test(`the icicle has the sums of memory ${label}`, async () => {
        const { page, close } = await pages.show(makeDocument(run));
        await brush(page, run, 17, 49);
        await page.getByRole('radio', { name: label, exact: true }).check();
        for (const [weight, column] of [
            ['bytes', 0],
            ['count', 1],
        ]) {
            await page.getByRole('radio', { name: weight, exact: true }).check();
            await walkIcicle(page, oracle.icicle(run, 17, 49, measure, column));
        }
        await close();
    });
}

/** Follows the largest frames down from the top, and compares all frames beside the way. */
async function walkIcicle(page, expected) {
    const canvas = page.locator('canvas.icicle');
    await canvas.focus();
    await page.keyboard.press('Home');
    const path = [];
    for (;;) {
        const rows = await page
            .locator('table[data-table="icicle"] tbody tr')
            .evaluateAll((all) =>
                all.map((row) => [
                    row.querySelector('th').textContent,
                    Number(row.querySelector('td').dataset.value),
                ]),
            );
        const [[, own], ...parts] = rows;
        assert.equal(own, expected.get(JSON.stringify(path)));
        const wanted = [...expected].filter(([key, value]) => {
            const at = JSON.parse(key);
            return (
                value > 0 && at.length === path.length + 1 && path.every((name, depth) => at[depth] === name)
            );
        });
        const byName = (all) => [...all].sort((a, b) => (a[0] < b[0] ? -1 : 1));
        assert.deepEqual(
            byName(parts),
            byName(wanted.map(([key, value]) => [JSON.parse(key).at(-1), value])),
        );
        if (parts.length === 0) break;
        path.push(parts[0][0]);
        await page.keyboard.press('ArrowDown');
        await page.keyboard.press('Enter');
    }
    assert.ok(path.length >= 5, `only ${path.length} levels`);
}

test('frames of the icicle are as wide as their share', async () => {
    const { page, close } = await pages.show(makeDocument(run));
    const values = oracle.icicle(run, 0, BINS, 'live', 0);
    const canvas = page.locator('canvas.icicle');
    await canvas.scrollIntoViewIfNeeded();
    const box = await canvas.boundingBox();
    const rowHeight = 18;
    const root = values.get('[]');
    /** Points at the middle of each frame of a level, the largest first within its caller. */
    const point = async (path, left, depth) => {
        const key = JSON.stringify(path);
        const parts = [...values].filter(([at, value]) => {
            const names = JSON.parse(at);
            return value > 0 && names.length === depth && key === JSON.stringify(names.slice(0, -1));
        });
        let x = left;
        for (const [at, value] of parts.sort((a, b) => b[1] - a[1])) {
            const width = (value / root) * box.width;
            if (width > 3) {
                await page.mouse.move(box.x + x + width / 2, box.y + depth * rowHeight + rowHeight / 2);
                const names = JSON.parse(at);
                assert.equal(await page.locator('.icicle-box .said strong').textContent(), names.at(-1));
                if (depth < 3) await point(names, x, depth + 1);
            }
            x += width;
        }
    };
    await point([], 0, 1);
    await close();
});

test('blocks of the memory map are where the document has them', async () => {
    const { page, close } = await pages.show(makeDocument(run));
    const [{ map, sites }] = run.pytorch;
    const segments = [...map.segments].sort((a, b) => b.bytes - a.bytes);
    const canvas = page.locator('canvas.segments');
    await canvas.scrollIntoViewIfNeeded();
    const box = await canvas.boundingBox();
    const [text, rowHeight] = [176, 22];
    const scale = (box.width - text) / segments[0].bytes;
    let pointed = 0;
    for (const [row, { address, blocks }] of segments.entries()) {
        for (let at = 0; at < blocks.length && row < 12; at += 4) {
            const [offset, bytes, site] = blocks.slice(at, at + 3);
            if (bytes * scale < 6) continue;
            const x = box.x + text + (offset + bytes / 2) * scale;
            await page.mouse.move(x, box.y + row * rowHeight + rowHeight / 2);
            const said = await page.locator('.map .said').textContent();
            const name =
                site === -2
                    ? 'free, cached'
                    : site === -1
                      ? 'unknown'
                      : `T${sites[site].id} ${sites[site].label}`;
            assert.ok(
                said.startsWith(name) && said.endsWith(`of segment ${address}`),
                `${said}: ${name}, ${address}`,
            );
            pointed += 1;
        }
    }
    assert.ok(pointed > 30, `${pointed} blocks`);
    await close();
});

test('a search tells the share that matches', async () => {
    const { page, close } = await pages.show(makeDocument(run));
    for (const wanted of ['train_3', 'op_1<', 'cudaMallocAsync', 'nothing has this name']) {
        await page.getByLabel('Search').fill(wanted);
        const shown = await page.locator('.matched').getAttribute('data-matched');
        assert.equal(Number(shown), oracle.searched(run, 0, BINS, 'live', wanted), wanted);
    }
    await close();
});

test('the timeline has the values at the cursor, at the peak and at the end', async () => {
    const { page, close } = await pages.show(makeDocument(run));
    const lines = run.memory.timelines;
    const chart = page.locator('[data-chart="memory"]');
    for (const [by, name] of [
        ['kind', 'kind'],
        ['owner', 'owner'],
        ['site', 'call site'],
    ]) {
        await page.getByRole('radio', { name, exact: true }).check();
        await chart.focus();
        await page.keyboard.press('Home');
        for (let step = 0; step < 23; step += 1) await page.keyboard.press('ArrowRight');
        await page.mouse.move(0, 0);
        const { rows } = await tableValues(page, 'timeline');
        const now = oracle.timelineAt(lines[by], run.edges_ns[23]);
        const peak = oracle.timelineAt(lines[by], run.memory.peak.time_ns);
        const end = oracle.timelineAt(lines[by], Infinity);
        for (const label of lines[by].labels) {
            assert.deepEqual(rows[label], { now: now[label], peak: peak[label], end: end[label] });
        }
        const sum = (values) => Object.values(values).reduce((a, b) => a + b);
        assert.deepEqual(rows.total, { now: sum(now), peak: run.memory.peak.bytes, end: sum(end) });
        const highest = Math.max(...run.memory.overlay[0].points.map(([, bytes]) => bytes));
        assert.equal(rows['nvidia-smi GPU 0'].highest, highest);
    }
    await close();
});

test('the areas drawn are those of the legend, at their heights', async () => {
    const { page, close } = await pages.show(makeDocument(run));
    const { timelines, overlay } = run.memory;
    const top = Math.max(...overlay[0].points.map(([, bytes]) => bytes)) * 1.08;
    let seen = 0;
    for (const [by, name] of [
        ['site', 'call site'],
        ['owner', 'owner'],
        ['kind', 'kind'],
    ]) {
        await page.getByRole('radio', { name, exact: true }).check();
        await page.evaluate(
            () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))),
        );
        for (const bin of [9, 31, 50]) {
            // The middle of the time that the bin's last value holds.
            const ns = run.edges_ns[bin] + 0.2 * (run.edges_ns[1] - run.edges_ns[0]);
            const values = oracle.timelineAt(timelines[by], ns);
            const shown = await areaColors(page, ns / run.edges_ns[BINS], top, Object.entries(values));
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
        ([x, most, areas]) => {
            const chart = document.querySelector('[data-chart="memory"]');
            const canvas = chart.querySelector('canvas');
            const ctx = canvas.getContext('2d');
            const own = canvas.getBoundingClientRect();
            const plot = chart.querySelector('.u-over').getBoundingClientRect();
            const legend = document.querySelector('table[data-table="timeline"]');
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

test('allocations live at the cursor are listed, the largest first', async () => {
    const { page, close } = await pages.show(makeDocument(run));
    await page.locator('[data-chart="memory"]').focus();
    await page.keyboard.press('Home');
    for (let step = 0; step < 30; step += 1) await page.keyboard.press('ArrowRight');
    await showAll(page, 'allocations');
    const expected = oracle.liveAt(run, run.edges_ns[30]);
    const { rows } = await tableValues(page, 'allocations');
    assert.deepEqual(
        Object.values(rows).map((row) => [row.address, row.bytes, row.age, row.tid]),
        expected.map(([address, bytes, time, , , , tid]) => [
            Number(address),
            bytes,
            run.edges_ns[30] - time,
            tid,
        ]),
    );
    const about = page.locator('[data-bytes]');
    assert.equal(
        await about.getAttribute('data-bytes'),
        String(expected.reduce((sum, one) => sum + one[1], 0)),
    );
    assert.match(await about.textContent(), /lists the largest 300 of 900 allocations/);
    await close();
});

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
        assert.match(
            await page.locator('.cell').last().textContent(),
            /Of 1 kernel only the launches of the whole run/,
        );
    });
});

test('histograms are of the row that is chosen, within the range', async () => {
    await eachRange(async (page, from, to) => {
        const kernel = run.kernels[5];
        await page.locator(`tr[data-id="${kernel.pid} ${kernel.name}"] .picker`).click();
        await expectHistogram(page, 'kernel-histogram', oracle.histogram(kernel.histogram, from, to));
        const copy = run.copies[2];
        await page.locator(`tr[data-id="${copy.pid} ${copy.direction} ${copy.mode}"] .picker`).click();
        await expectHistogram(page, 'copy-histogram', oracle.histogram(copy.histogram, from, to));
    });
});

test('kernels have their short names, and the whole one beside the histogram', async () => {
    const { page, close } = await pages.show(makeDocument(run));
    const { pid, name, short } = run.kernels[4];
    const picker = page.locator(`tr[data-id="${pid} ${name}"] .picker`);
    await picker.click();
    assert.equal(await picker.locator('.elided').textContent(), short);
    assert.equal(await page.locator('.histogram h4').first().textContent(), short);
    assert.equal(await page.locator('.histogram .full').first().textContent(), name);
    await close();
});

async function expectHistogram(page, name, expected) {
    const { rows } = await tableValues(page, name);
    const shown = Object.fromEntries(Object.entries(rows).map(([bucket, row]) => [bucket, row.count]));
    assert.deepEqual(shown, expected);
}

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

test('tensors have the sums of the range', async () => {
    const [{ sites, before_bytes: before }] = run.pytorch;
    await eachRange(async (page, from, to) => {
        const { rows, total } = await tableValues(page, 'tensor-sites');
        let live = before[to - 1];
        for (const { id, changes } of sites) {
            const [allBytes, all, allFreed, frees] = oracle.flat(changes, 5, 0, to);
            const [allocated, , freed] = oracle.flat(changes, 5, from, to);
            live += allBytes - allFreed;
            const row = rows[`T${id}`];
            const expected = { live: allBytes - allFreed, tensors: all - frees, allocated, freed };
            if (Object.values(expected).every((value) => value === 0)) assert.equal(row, undefined);
            else
                for (const [key, value] of Object.entries(expected))
                    assert.equal(row[key], value, `T${id} ${key}`);
        }
        assert.equal(rows.before?.live ?? 0, before[to - 1]);
        assert.equal(total.live, live);
    });
});

test('the memory map and the chart of tensors have the figures of the document', async () => {
    const { page, close } = await pages.show(makeDocument(run));
    const [{ map, report, timeline }] = run.pytorch;
    const { rows } = await tableValues(page, 'segments');
    for (const { address, bytes, blocks } of map.segments) {
        const sizes = (free) => {
            const found = [];
            for (let at = 0; at < blocks.length; at += 4)
                if ((blocks[at + 2] === -2) === free) found.push(blocks[at + 1]);
            return found;
        };
        const used = sizes(false).reduce((a, b) => a + b, 0);
        const largest_free = Math.max(0, ...sizes(true));
        assert.deepEqual(rows[address], { bytes, used, largest_free, blocks: sizes(false).length });
    }
    assert.equal(Object.keys(rows).length, map.segments.length);
    const reserved = page.locator('[data-figure="reserved_bytes"]');
    assert.equal(await reserved.getAttribute('data-value'), String(report.reserved_bytes));
    const chart = (await tableValues(page, 'tensor-timeline')).rows;
    assert.equal(chart.reserved.highest, Math.max(...timeline.reserved));
    timeline.labels.forEach((label, row) => {
        assert.deepEqual(chart[label], {
            highest: Math.max(...timeline.values[row]),
            end: timeline.values[row].at(-1),
        });
    });
    await close();
});

test('processes and verdicts are those of the document', async () => {
    const { page, close } = await pages.show(makeDocument(run));
    const { rows } = await tableValues(page, 'processes');
    for (const one of run.processes) {
        const { pid, peak_bytes, never_freed_bytes, launches } = rows[one.pid];
        assert.deepEqual({ pid, peak_bytes, never_freed_bytes, launches }, pickProcess(one));
    }
    const grades = await page
        .locator('[data-grade]')
        .evaluateAll((all) => all.map((one) => one.dataset.grade));
    assert.deepEqual(grades, ['LEAK', 'warn', 'ok', 'note']);
    await close();
});

const pickProcess = ({ pid, peak_bytes, never_freed_bytes, launches }) => ({
    pid,
    peak_bytes,
    never_freed_bytes,
    launches,
});

test('the script for comparisons prints what the page shows', async () => {
    const { close } = await pages.show(makeDocument(run));
    await close();
    const script = fileURLToPath(new URL('figures.mjs', import.meta.url));
    const args = [script, pages.last(), '--from-edge', '17', '--to-edge', '49'];
    const { stdout } = await promisify(execFile)(process.execPath, args);
    const figures = JSON.parse(stdout);
    const { total, rows } = oracle.sites(run, 17, 49);
    assert.deepEqual([figures.live_bytes, figures.live_allocations], total.live);
    assert.deepEqual([figures.never_freed_bytes, figures.never_freed_allocations], total.never_freed);
    assert.deepEqual([figures.allocated_bytes, figures.allocations], total.allocated);
    assert.equal(figures.peak_bytes, oracle.peakBin(run, 17, 49).bytes);
    assert.deepEqual(Object.keys(figures.sites), Object.keys(rows));
    assert.deepEqual(figures.range, [run.edges_ns[17], run.edges_ns[49] - 1]);
    assert.deepEqual([figures.violations, figures.requests, figures.errors], [0, 0, []]);
    const range = `--from ${run.edges_ns[17]}ns --to ${run.edges_ns[49] - 1}ns`;
    assert.ok(figures.commands.includes(`gpuprobe report run.sqlite --analysis leakage ${range} --top all`));
});
