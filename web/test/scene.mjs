// A page with a synthetic document, opened for a test.

import { after, before } from 'node:test';
import { folder, launch, open, writePage } from './browser.mjs';

/** Opens pages for the tests of a file; the browser and the files are gone at the end. */
export function scene() {
    const own = {};
    before(async () => {
        own.browser = await launch();
        own.folder = await folder();
    });
    after(async () => {
        await own.browser?.close();
        await own.folder?.clean();
    });
    let pages = 0;
    return {
        /** Writes the page of a document and opens it, in a context of its own. */
        async show(document, { change, ...options } = {}) {
            pages += 1;
            const path = own.folder.file(`page-${pages}.html`);
            await writePage(document, path, change);
            return open(own.browser, path, options);
        },
        /** The path of the page that was written last. */
        last: () => own.folder.file(`page-${pages}.html`),
        /** The browser's name for its pages. */
        browser: () => own.browser,
    };
}

/** Types a range of edges into the inputs. */
export async function brush(page, run, from, to, nth = 0) {
    const bar = page.locator('.range').nth(nth);
    for (const [name, edge] of [
        ['from', from],
        ['to', to],
    ]) {
        const input = bar.locator(`input[name="${name}"]`);
        await input.fill(String(run.edges_ns[edge] / 1e9));
        await input.dispatchEvent('change');
    }
}

/** The edges of the range that the page looks at. */
export async function edges(page, nth = 0) {
    const text = await page.locator('.range').nth(nth).getAttribute('data-edges');
    return text.split(' ').map(Number);
}
