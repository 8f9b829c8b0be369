// Pictures of each section, in light and dark: node web/test/screenshots.mjs FILE.html OUTDIR [WIDTH]

import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { launch, open } from './browser.mjs';

const [file, out, width = '1400'] = process.argv.slice(2);
if (!file || !out) {
    console.error('usage: node screenshots.mjs FILE.html OUTDIR [WIDTH]');
    process.exit(2);
}
await mkdir(out, { recursive: true });
const browser = await launch();
for (const colorScheme of ['light', 'dark']) {
    const viewport = { width: Number(width), height: 900 };
    const { page, close } = await open(browser, file, { colorScheme, viewport });
    const name = (title) => `${title.toLowerCase().replace(/[^a-z]+/g, '-')}-${colorScheme}.png`;
    const header = await page.locator('header').boundingBox();
    await page.screenshot({
        path: join(out, name('top')),
        clip: { x: 0, y: 0, width: viewport.width, height: Math.max(900, header?.height ?? 0) },
    });
    // The range sticks to the top, over what is pictured.
    await page.evaluate(() => {
        for (const bar of document.querySelectorAll('.ranges')) bar.style.position = 'static';
    });
    for (const section of await page.locator('section').all()) {
        const title = await section.locator('h2').textContent();
        await section.screenshot({ path: join(out, name(title ?? 'section')) });
        console.log(join(out, name(title ?? 'section')));
    }
    await close();
}
await browser.close();
