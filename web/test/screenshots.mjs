// Pictures of each part of a page, in light and dark, each below 150 kB:
//
//     node web/test/screenshots.mjs FILE.html OUTDIR [WIDTH]

import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { launch, open } from './browser.mjs';
import { indexed } from './png.mjs';

/** Most of a part that is pictured, pixels. */
const HIGHEST = 900;
/** Around a part, pixels. */
const MARGIN = 10;
const LIMIT_BYTES = 150_000;

const [file, out, width = '1400'] = process.argv.slice(2);
if (!file || !out) {
    console.error('usage: node screenshots.mjs FILE.html OUTDIR [WIDTH]');
    process.exit(2);
}

/** Parts with their names: sections, and what these consist of. */
async function parts(page) {
    const found = [];
    for (const section of await page.locator('section').all()) {
        const title = await section.locator('h2').textContent();
        const panels = await section.locator('.cell:first-child .panel').all();
        const pair = (await section.locator('.cell').count()) > 1;
        if (panels.length === 0 || pair) found.push([title, section]);
        else
            for (const panel of panels)
                found.push([`${title} ${await panel.locator('h3').first().textContent()}`, panel]);
    }
    return found;
}

async function save(path, png) {
    const small = indexed(png);
    await writeFile(path, small);
    console.log(`${path}: ${small.length} bytes${small.length > LIMIT_BYTES ? ', TOO LARGE' : ''}`);
}

async function picture(page, path, part) {
    const box = await part.boundingBox();
    const clip = {
        x: Math.max(0, box.x - MARGIN),
        y: Math.max(0, box.y - MARGIN),
        width: box.width + 2 * MARGIN,
        height: Math.min(box.height, HIGHEST) + 2 * MARGIN,
    };
    await save(path, await page.screenshot({ clip, fullPage: true }));
}

await mkdir(out, { recursive: true });
const browser = await launch();
for (const colorScheme of ['light', 'dark']) {
    const viewport = { width: Number(width), height: 900 };
    const { page, close } = await open(browser, file, { colorScheme, viewport });
    const path = (title) => join(out, `${title.toLowerCase().replace(/[^a-z]+/g, '-')}-${colorScheme}.png`);
    await save(path('top'), await page.screenshot());
    // The range would stay at the top of what is visible, over what is pictured.
    await page.evaluate(() => {
        for (const bar of document.querySelectorAll('.ranges')) bar.style.position = 'static';
    });
    for (const [title, part] of await parts(page)) await picture(page, path(title), part);
    await close();
}
await browser.close();
