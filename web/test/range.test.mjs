// A range is brushed by mouse and by inputs, and filters what is below.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { tableValues } from './browser.mjs';
import * as oracle from './oracle.mjs';
import { brush, edges, scene } from './scene.mjs';
import { makeDocument, makeRun } from './synthetic.mjs';

const run = makeRun({ seed: 5, paths: 80, changes: 1500 });
const BINS = run.edges_ns.length - 1;
const pages = scene();

/** Where the chart is, and where a time is in it. */
async function plot(page, name = 'memory') {
    const box = await page.locator(`[data-chart="${name}"] .u-over`).boundingBox();
    const x = (ns) => box.x + (ns / run.edges_ns[BINS]) * box.width;
    return { x, y: box.y + box.height / 2, box };
}

async function drag(page, fromNs, toNs, name = 'memory') {
    await page.locator(`[data-chart="${name}"]`).scrollIntoViewIfNeeded();
    const { x, y } = await plot(page, name);
    await page.mouse.move(x(fromNs), y);
    await page.mouse.down();
    await page.mouse.move((x(fromNs) + x(toNs)) / 2, y);
    await page.mouse.move(x(toNs), y);
    await page.mouse.up();
}

async function expectRange(page, from, to) {
    assert.deepEqual(await edges(page), [from, to]);
    const { total } = await tableValues(page, 'sites');
    const expected = oracle.sites(run.memory, from, to).total;
    for (const name of ['live', 'peak', 'allocated', 'freed', 'never_freed']) {
        assert.deepEqual(total[name], expected[name], name);
    }
}

/** A time between two edges, nearer to the first. */
const near = (edge) => run.edges_ns[edge] + 0.3 * (run.edges_ns[1] - run.edges_ns[0]);

test('dragging over a chart selects a range that snaps to the bins', async () => {
    const { page, close } = await pages.show(makeDocument(run));
    await drag(page, near(10), near(41));
    await expectRange(page, 10, 41);
    await drag(page, near(50), near(20));
    await expectRange(page, 20, 50);
    await drag(page, near(5), near(30), 'busy-0');
    await expectRange(page, 5, 30);
    await page.getByRole('button', { name: 'Reset' }).click();
    await expectRange(page, 0, BINS);
    await drag(page, near(13) - 9e7, near(13) + 9e7);
    await expectRange(page, 13, 14);
    await page.locator('[data-chart="memory"] .u-over').dblclick();
    await expectRange(page, 0, BINS);
    await close();
});

test('inputs take seconds and snap to the nearest edge', async () => {
    const { page, close } = await pages.show(makeDocument(run));
    await brush(page, run, 33, 48);
    await expectRange(page, 33, 48);
    const from = page.locator('.range input[name="from"]');
    await from.fill(String(near(12) / 1e9));
    await from.press('Enter');
    await expectRange(page, 12, 48);
    assert.equal(await from.inputValue(), String(Number((run.edges_ns[12] / 1e9).toFixed(3))));
    await from.fill(String(run.edges_ns[60] / 1e9));
    await from.press('Tab');
    await expectRange(page, 60, BINS);
    await from.fill('');
    await from.press('Tab');
    await expectRange(page, 0, BINS);
    await close();
});

test('commands have the range in nanoseconds, where it applies', async () => {
    const { page, close } = await pages.show(makeDocument(run));
    const commands = () =>
        page.locator('[data-command]').evaluateAll((all) => all.map((one) => one.dataset.command));
    assert.ok((await commands()).every((one) => !/--from|--to /.test(one)));
    await brush(page, run, 12, 48);
    const options = `--from ${run.edges_ns[12]}ns --to ${run.edges_ns[48] - 1}ns`;
    const shown = await commands();
    assert.ok(shown.includes(`gpuprobe report run.sqlite --analysis usage ${options}`), shown.join('\n'));
    assert.ok(shown.includes(`gpuprobe report run.sqlite --analysis leakage ${options} --top all`));
    assert.ok(
        shown.includes(`gpuprobe report run.sqlite --analysis leakage --pid 4711 ${options} --top all`),
    );
    for (const work of ['--analysis kernels', '--analysis copies']) {
        assert.ok(shown.includes(`gpuprobe report run.sqlite ${work} ${options} --top all`), work);
    }
    await page.getByLabel('Memory', { exact: true }).first().selectOption('peak');
    assert.ok(
        (await commands()).includes(`gpuprobe report run.sqlite --analysis watermark ${options} --top all`),
    );
    await brush(page, run, 0, 48);
    assert.ok(
        (await commands()).includes(
            `gpuprobe report run.sqlite --analysis usage --to ${run.edges_ns[48] - 1}ns`,
        ),
    );
    await close();
});

test('a range before the first memory event has negative times in commands', async () => {
    const zero = run.edges_ns[20];
    const early = { ...run, edges_ns: run.edges_ns.map((ns) => ns - zero) };
    const { page, close } = await pages.show(makeDocument(early));
    await brush(page, early, 12, 18);
    const commands = await page
        .locator('[data-command]')
        .evaluateAll((all) => all.map((one) => one.dataset.command));
    const options = `--from=${early.edges_ns[12]}ns --to=${early.edges_ns[18] - 1}ns`;
    assert.ok(
        commands.includes(`gpuprobe report run.sqlite --analysis kernels ${options} --top all`),
        commands.join('\n'),
    );
    await close();
});

test('a command is copied', async () => {
    const permissions = ['clipboard-read', 'clipboard-write'];
    const { page, seen, close } = await pages.show(makeDocument(run), { permissions });
    const line = page.locator('[data-command*="--analysis leakage --top"]');
    const command = await line.getAttribute('data-command');
    const button = line.getByRole('button', { name: 'copy the command' });
    await button.click();
    await button.filter({ hasText: 'Copied' }).waitFor();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), command);
    assert.deepEqual(seen.errors, []);
    await close();
});

test('tables are sorted by their headings and show the first rows until asked for all', async () => {
    const many = makeRun({ seed: 6, paths: 500, changes: 2000 });
    const { page, close } = await pages.show(makeDocument(many));
    const rows = page.locator('table[data-table="sites"] tbody tr');
    assert.equal(await rows.count(), 100);
    const heading = page.locator('table[data-table="sites"] thead th', { hasText: 'Allocated' });
    await heading.getByRole('button').click();
    assert.equal(await heading.getAttribute('aria-sort'), 'descending');
    const values = () =>
        page
            .locator('table[data-table="sites"] tbody td[data-key="allocated"]')
            .evaluateAll((all) => all.map((one) => Number(one.dataset.value)));
    const falling = await values();
    assert.deepEqual(
        falling,
        [...falling].sort((a, b) => b - a),
    );
    const all = Object.values(oracle.sites(many.memory, 0, BINS).rows);
    assert.equal(falling[0], Math.max(...all.map((one) => one.allocated[0])));
    await heading.getByRole('button').click();
    assert.equal(await heading.getAttribute('aria-sort'), 'ascending');
    await page.getByRole('button', { name: `Show all ${all.length}` }).click();
    assert.equal(await rows.count(), all.length);
    await close();
});

test('a call site opens to its whole stack', async () => {
    const { page, close } = await pages.show(makeDocument(run));
    const opener = page.locator('table[data-table="sites"] .opener').first();
    const id = Number((await opener.textContent()).slice(1));
    await opener.click();
    const shown = await page.locator('tr.wide ol').first().locator('li').allTextContents();
    const stacks = run.memory.paths.filter((one) => one.site === id && !one.host);
    const names = stacks.map((one) => one.stack.map((number) => run.frames[number][0]));
    const matches = (stack) =>
        stack.length === shown.length && stack.every((name, at) => shown[at].includes(name));
    assert.ok(names.some(matches), shown.join('\n'));
    await opener.click();
    assert.equal(await page.locator('tr.wide').count(), 0);
    await close();
});
