// Light, dark and printed; by keyboard alone; large documents; two runs.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { open, tableValues } from './browser.mjs';
import * as oracle from './oracle.mjs';
import { brush, edges, scene } from './scene.mjs';
import { makeDocument, makeLarge, makePair, makeRun } from './synthetic.mjs';

const run = makeRun({ seed: 8 });
const pages = scene();

const background = (page) =>
    page.evaluate(() => getComputedStyle(document.querySelector('section')).backgroundColor);
const BACK = { light: 'rgb(255, 255, 255)', dark: 'rgb(22, 26, 32)' };

/** How much text on the page has less contrast to its background than 4.5 to 1. */
const lowContrast = (page) =>
    page.evaluate(() => {
        const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
        const rgb = (color) => {
            canvas.clearRect(0, 0, 1, 1);
            canvas.fillStyle = color;
            canvas.fillRect(0, 0, 1, 1);
            return [...canvas.getImageData(0, 0, 1, 1).data];
        };
        const light = (color) => {
            const [r, g, b] = rgb(color).map((value) =>
                value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4,
            );
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const behind = (element) => {
            for (let at = element; at; at = at.parentElement) {
                const color = getComputedStyle(at).backgroundColor;
                if (rgb(color)[3] === 255) return color;
            }
            return 'white';
        };
        const found = [];
        for (const element of document.querySelectorAll('body *')) {
            const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
            if (!own || element.closest('[hidden], script, button:disabled') || element.offsetParent === null)
                continue;
            const [a, b] = [light(getComputedStyle(element).color), light(behind(element))];
            const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            if (ratio < 4.5)
                found.push(
                    `${element.tagName} ${element.className} ${element.textContent.slice(0, 30)} ${ratio.toFixed(2)}`,
                );
        }
        return [...new Set(found)];
    });

for (const colorScheme of ['light', 'dark']) {
    test(`${colorScheme} colours follow the system, and text is readable`, async () => {
        const { page, seen, close } = await pages.show(makeDocument(run), { colorScheme });
        assert.equal(await background(page), BACK[colorScheme]);
        assert.deepEqual(await lowContrast(page), []);
        const other = colorScheme === 'dark' ? 'light' : 'dark';
        await page.emulateMedia({ colorScheme: other });
        assert.equal(await background(page), BACK[other]);
        assert.deepEqual(await lowContrast(page), []);
        assert.deepEqual(seen.errors, []);
        await close();
    });
}

test('print is light, without buttons, with all rows that are shown', async () => {
    const { page, close } = await pages.show(makeDocument(run), { colorScheme: 'dark' });
    await page.emulateMedia({ media: 'print' });
    assert.equal(await background(page), BACK.light);
    assert.equal(await page.locator('nav').isVisible(), false);
    assert.equal(
        await page
            .getByRole('button', { name: /copy the command/ })
            .first()
            .isVisible(),
        false,
    );
    assert.equal(await page.locator('.command code').first().isVisible(), true);
    const cut = await page
        .locator('.scroller')
        .evaluateAll((all) => all.filter((one) => getComputedStyle(one).overflow !== 'visible').length);
    assert.equal(cut, 0);
    assert.ok((await page.pdf()).length > 10_000);
    await page.emulateMedia({ media: 'screen' });
    assert.equal(await background(page), BACK.dark);
    await close();
});

for (const width of [1400, 700]) {
    test(`nothing is wider than the window at ${width} pixels`, async () => {
        const { page, close } = await pages.show(makeDocument(run), { viewport: { width, height: 900 } });
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        assert.ok(wide <= width, `${wide}`);
        await close();
    });
}

test('all controls are reached by Tab alone, with a name and a visible focus', async () => {
    const { page, close } = await pages.show(makeDocument(makeRun({ seed: 8, paths: 12 })));
    const all = await page.evaluate(() => {
        const wanted = 'a[href], button:not(:disabled), input, select, summary, [tabindex="0"]';
        const visible = [...document.querySelectorAll(wanted)].filter((one) => one.checkVisibility());
        visible.forEach((one, at) => (one.dataset.stop = at));
        return visible.length;
    });
    const reached = new Set();
    for (let step = 0; step < all + 20 && reached.size < all; step += 1) {
        await page.keyboard.press('Tab');
        const seen = await page.evaluate(() => {
            const one = document.activeElement;
            const style = getComputedStyle(one);
            const named = one.getAttribute('aria-label') || one.labels?.[0]?.textContent || one.textContent;
            return {
                stop: one.dataset.stop,
                outline: style.outlineStyle,
                name: named?.trim(),
                tag: one.outerHTML.slice(0, 80),
            };
        });
        if (seen.stop === undefined) continue;
        reached.add(seen.stop);
        assert.notEqual(seen.outline, 'none', `no visible focus: ${seen.tag}`);
        assert.ok(seen.name, `no name: ${seen.tag}`);
    }
    assert.equal(reached.size, all);
    await close();
});

test('a document of 10 million events opens within 5 s and follows a range', async () => {
    const large = makeLarge();
    const [only] = large.runs;
    const changes = only.memory.paths.reduce((sum, one) => sum + one.changes.length / 9, 0);
    assert.ok(only.memory.paths.length === 20_000 && changes >= 150_000 && only.edges_ns.length === 257);
    const { close: closeFirst } = await pages.show(large);
    await closeFirst();
    const began = performance.now();
    const { page, seen, close } = await open(pages.browser(), pages.last());
    const opened = performance.now() - began;
    assert.ok(opened < 5000, `opened in ${opened.toFixed(0)} ms`);
    const brushed = performance.now();
    await brush(page, only, 40, 200);
    const took = performance.now() - brushed;
    const { total } = await tableValues(page, 'sites');
    assert.deepEqual(total.never_freed, oracle.sites(only.memory, 40, 200).total.never_freed);
    assert.ok(took < 3000, `brushed in ${took.toFixed(0)} ms`);
    console.log(`10 million events: opened in ${opened.toFixed(0)} ms, two ranges in ${took.toFixed(0)} ms`);
    assert.deepEqual(seen.errors, []);
    await close();
});

test('two runs are side by side, to the same scale, with the growth on top', async () => {
    const pair = makePair();
    const { page, seen, close } = await pages.show(pair);
    const headings = await page.locator('h2').allTextContents();
    assert.equal(headings[0], 'Growth from before to after');
    const { rows } = await tableValues(page, 'diff');
    for (const { label, stack, bytes, allocations } of pair.diff.never_freed) {
        const row = rows[`${label} ${stack.join(' ')}`];
        assert.deepEqual([row.before, row.after, row.change], [...bytes, bytes[1] - bytes[0]]);
        assert.deepEqual([row.count_before, row.count_after], allocations);
    }
    const charts = page.locator('[data-chart="memory"]');
    assert.equal(await charts.count(), 2);
    const tops = await charts.evaluateAll((all) => all.map((one) => Number(one.dataset.top)));
    const highest = Math.max(
        ...pair.runs.flatMap((run) => run.memory.overlay[0].points.map(([, bytes]) => bytes)),
    );
    assert.deepEqual(tops, [highest * 1.08, highest * 1.08]);
    const [left, right] = [await charts.nth(0).boundingBox(), await charts.nth(1).boundingBox()];
    assert.ok(left.x + left.width <= right.x && Math.abs(left.y - right.y) < 1);
    await brush(page, pair.runs[1], 10, 30, 1);
    assert.deepEqual(await edges(page, 0), [0, 64], 'a range is of one run');
    for (const [nth, from, to] of [
        [0, 0, 64],
        [1, 10, 30],
    ]) {
        const { total } = await tableValues(page, 'sites', nth);
        const expected = oracle.sites(pair.runs[nth].memory, from, to).total;
        assert.deepEqual(total.never_freed, expected.never_freed);
        assert.deepEqual(total.peak, expected.peak);
    }
    const command = page.locator('[data-command*="--diff"]');
    assert.equal(
        await command.getAttribute('data-command'),
        'gpuprobe report monday.sqlite --diff tuesday.sqlite --top all',
    );
    assert.deepEqual(seen, { requests: [], violations: [], dialogs: [], errors: [] });
    await close();
});

test('a legend names call sites by the frames that differ, and has the whole at the mouse', async () => {
    const outer = 'train.py:88 <module> > train.py:70 main';
    const labels = [
        `${outer} > model.py:40 step > pool.py:13 alloc`,
        `${outer} > model.py:41 step > pool.py:13 alloc`,
        `${outer} > model.py:41 step > pool.py:19 grow`,
        'cudaMalloc',
    ];
    const named = makeRun({ seed: 8, paths: 8 });
    for (const [at, key] of Object.keys(named.memory.sites).entries())
        named.memory.sites[key] = labels[at % labels.length];
    const { page, close } = await pages.show(makeDocument(named));
    await page.getByLabel('Grouped by').selectOption('call site');
    const keys = await page
        .locator('table[data-table="memory"] tbody th')
        .evaluateAll((all) =>
            all.map((one) => [
                one.firstChild.textContent,
                one.querySelector('small')?.textContent,
                one.firstChild.title,
            ]),
        );
    const ids = ['#1', '#4', '#7', '#10'];
    const wanted = [
        ['model.py:40 step', `${outer} > … > pool.py:13 alloc`],
        ['model.py:41 step > pool.py:13 alloc', `${outer} > …`],
        ['pool.py:19 grow', `${outer} > model.py:41 step > …`],
        ['cudaMalloc', undefined],
    ].map(([own, rest], at) => [`${ids[at]} ${own}`, rest, `${ids[at]} ${labels[at]}`]);
    for (const [own, rest, title] of wanted)
        assert.deepEqual(
            keys.find((one) => one[2] === title),
            [own, rest, title],
        );
    await close();
});

test('what was not recorded is no 0', async () => {
    const unknown = { ...run.processes[0], launches: 0, copies: null, copied_bytes: null };
    const { page, close } = await pages.show(makeDocument({ ...run, processes: [unknown] }));
    const cell = (key) => page.locator(`table[data-table="processes"] td[data-key="${key}"]`);
    const shown = await Promise.all(
        ['launches', 'copies', 'copied_bytes'].map((key) => cell(key).textContent()),
    );
    assert.deepEqual(shown, ['0', 'not recorded', 'not recorded']);
    await close();
});

test('leaks come first, and without any what is held, or was before the processes ended', async () => {
    const one = (grade, freed, held) => {
        const other = makeRun({ seed: 8, paths: 1, pids: [4711] });
        other.memory.paths[0].changes = [3, 4096, 4, freed, 1, held, held / 1024, 4096, 4];
        other.memory.bins = other.memory.bins.map(([ns], bin) => [ns, bin === 3 ? 4096 : 0]);
        other.explain.verdicts = other.explain.verdicts.filter((verdict) => verdict.grade === grade);
        return makeDocument({ ...other, tensors: [] });
    };
    for (const [run, first, measure, word] of [
        [one('LEAK', 1024, 0), 'Verdicts', 'live', 'Still held'],
        [one('LEAK', 4032, 64), 'Verdicts', 'never_freed', 'Never freed'],
        [one('ok', 1024, 0), 'Overview', 'live', 'Still held'],
        [one('ok', 1024, 3072), 'Overview', 'never_freed', 'Never freed'],
        [one('ok', 4032, 64), 'Overview', 'peak', 'Never freed'],
    ]) {
        const { page, close } = await pages.show(run);
        const legend = await page.locator('table[data-table="memory"] thead th').allTextContents();
        const shown = [
            await page.locator('h2').first().textContent(),
            await page.getByLabel('Memory', { exact: true }).inputValue(),
            await page.locator('.tiles dt').first().textContent(),
            legend.at(-1),
        ];
        assert.deepEqual(shown, [first, measure, word, word]);
        await close();
    }
});
