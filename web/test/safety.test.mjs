// Names that a traced program chose are text. The page loads nothing and runs nothing but its own.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { scene } from './scene.mjs';
import { makeDocument, makePair, makeRun } from './synthetic.mjs';

const EVIL = '<script>alert(1)</script>';
const IMAGE = '<img src=x onerror=alert(1)>';
const HIDDEN = '\u202egnp.exe\u0007';
const pages = scene();

/** A run in which every name is markup. */
function evilRun() {
    const run = makeRun({ seed: 7, paths: 30 });
    const [first, second] = run.memory.paths;
    run.file = `${EVIL}.sqlite`;
    run.title = `python ${EVIL}`;
    run.traced = EVIL;
    run.lost = { complete: false, sentence: `${IMAGE} lost` };
    run.frames.forEach((frame, at) => {
        frame[0] = `${at % 2 ? EVIL : IMAGE}${at}`;
        frame[1] = `/tmp/${EVIL}.py`;
        frame[3] = `/lib/${IMAGE}.so`;
    });
    run.processes.forEach((one) => (one.comm = `</td>${EVIL}`));
    for (const id of Object.keys(run.memory.sites)) run.memory.sites[id] = `${EVIL}${id}${HIDDEN}`;
    first.function = second.owner = second.kind = EVIL;
    run.memory.incidents[0].text = IMAGE;
    run.memory.overlay[0].label = EVIL;
    run.kernels.forEach((kernel, at) => (kernel.name = kernel.short = `${EVIL}${at}`));
    run.copies[0].direction = run.copy_sites[0].label = EVIL;
    run.gpus[0].name = IMAGE;
    for (const id of Object.keys(run.tensors[0].sites)) run.tensors[0].sites[id] = IMAGE;
    run.explain.verdicts.forEach((one) => {
        one.where = one.advice = EVIL;
        one.evidence = [IMAGE];
    });
    return run;
}

test('losses that are unknown are not shown as none', async () => {
    for (const [complete, badge] of [
        [null, 'unknown'],
        [false, 'incomplete'],
        [true, null],
    ]) {
        const run = makeRun({ seed: 8, paths: 3 });
        run.lost = { complete, sentence: 'about losses' };
        const { page, close } = await pages.show(makeDocument(run));
        const lost = page.locator('.lost');
        assert.equal(await lost.textContent(), `${badge ?? ''}about losses`);
        assert.equal(await lost.locator('.badge').count(), badge ? 1 : 0);
        await close();
    }
});

test('markup in names is shown as text, and nothing of it runs', async () => {
    const { page, seen, close } = await pages.show(makeDocument(evilRun()));
    assert.equal(await page.locator('script').count(), 2, 'the data and the script of the page');
    assert.equal(await page.locator('img').count(), 0);
    const text = await page.locator('body').innerText();
    assert.ok(text.includes(`python ${EVIL}`));
    assert.ok(text.includes(IMAGE));
    assert.ok(text.includes('\\u{202e}gnp.exe\\u{7}'), 'control characters are escaped');
    assert.ok(!text.includes('\u202e'));
    assert.equal(await page.title(), `gpuprobe report: ${EVIL}.sqlite`);
    await everythingOpened(page);
    assert.equal(await page.locator('script').count(), 2);
    assert.equal(await page.locator('img').count(), 0);
    assert.deepEqual(seen, { requests: [], violations: [], dialogs: [], errors: [] });
    const command = page.locator('[data-command*="--analysis usage"]');
    assert.equal(
        await command.getAttribute('data-command'),
        `gpuprobe report '${EVIL}.sqlite' --analysis usage`,
    );
    await close();
});

/** Opens all that can be opened, and points at what tells more then. */
async function everythingOpened(page) {
    for (const summary of await page.locator('summary').all()) await summary.click();
    for (const table of ['sites', 'tensor-sites']) {
        await page.locator(`table[data-table="${table}"] .opener`).first().click();
    }
    await page.locator('.flame g.frame').nth(2).hover();
    await page.locator('td canvas').first().hover();
    await page.getByLabel('Search').first().fill('script');
}

test('growth by call site shows markup as text', async () => {
    const pair = makePair();
    pair.diff.never_freed.forEach((row) => {
        row.label = `${EVIL}${row.label}`;
        row.stack = [EVIL, IMAGE];
    });
    const { page, seen, close } = await pages.show(pair);
    await page.locator('table[data-table="diff"] .opener').first().click();
    assert.match(
        await page.locator('table[data-table="diff"] ol').textContent(),
        /<script>alert\(1\)<\/script><img/,
    );
    assert.deepEqual(seen, { requests: [], violations: [], dialogs: [], errors: [] });
    await close();
});

test('the policy stops an inline script, a style and a request', async () => {
    const change = (page) =>
        page.replace(
            '<div id="page">',
            '<script>alert(1)</script><p style="color:red">x</p><img src="https://example.invalid/x.png"><div id="page">',
        );
    const { page, seen, close } = await pages.show(makeDocument(makeRun({ paths: 10 })), { change });
    await page.waitForFunction(() => document.documentElement.dataset.ready === 'true');
    const directives = new Set(seen.violations.map((one) => one.split(' ')[0]));
    assert.deepEqual([...directives].sort(), ['img-src', 'script-src-elem', 'style-src-attr']);
    assert.deepEqual(seen.dialogs, []);
    await close();
});

test('the page says so if its data cannot be read', async () => {
    const change = (page) => page.replace(/(id="data">)[^<]*/, '$1bm90IGd6aXA=');
    const { page, close } = await pages.show(makeDocument(makeRun({ paths: 10 })), { change });
    assert.match(await page.getByRole('alert').textContent(), /^cannot show the report: /);
    await close();
});

test('a document without anything shows what was traced', async () => {
    const run = makeRun({ paths: 10 });
    const nothing = {
        memory: null,
        explain: null,
        gpus: [],
        kernels: [],
        copies: [],
        copy_sites: [],
        tensors: [],
        processes: [],
        edges_ns: [],
    };
    const { page, seen, close } = await pages.show(
        makeDocument({ ...run, ...nothing, title: null, start: null }),
    );
    assert.deepEqual(await page.locator('h2').allTextContents(), ['Overview']);
    assert.equal(await page.locator('.range').count(), 0);
    assert.deepEqual(seen.errors, []);
    await close();
});
