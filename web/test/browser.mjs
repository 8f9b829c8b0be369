// The page in Debian's Chromium.

import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { gzipSync } from 'node:zlib';
import { chromium } from 'playwright-core';

const TEMPLATE = fileURLToPath(new URL('../dist/report.html', import.meta.url));
const CHROMIUM = process.env.GPUPROBE_CHROMIUM ?? '/usr/bin/chromium';

/** Starts a headless Chromium. */
export const launch = () =>
    chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox', '--disable-gpu'] });

/** Writes the page with a document in it, as gpuprobe does; `change` may alter the page. */
export async function writePage(document, path, change = (page) => page) {
    const data = gzipSync(JSON.stringify(document)).toString('base64');
    const page = (await readFile(TEMPLATE, 'utf8')).replace('@DATA@', () => data);
    await writeFile(path, change(page));
}

/** A folder for pages, removed by `clean`. */
export async function folder() {
    const path = await mkdtemp(join(tmpdir(), 'gpuprobe-web-'));
    return { file: (name) => join(path, name), clean: () => rm(path, { recursive: true }) };
}

/**
 * Opens a page and waits until it is drawn. Collects requests other than of the file itself,
 * violations of the content security policy, dialogs and errors.
 */
export async function open(browser, path, options = {}) {
    const context = await browser.newContext({
        viewport: { width: 1400, height: 900 },
        ...options,
    });
    const page = await context.newPage();
    const seen = { requests: [], violations: [], dialogs: [], errors: [] };
    const url = pathToFileURL(path).href;
    page.on('request', (request) => {
        if (request.url() !== url) seen.requests.push(request.url());
    });
    page.on('dialog', (dialog) => {
        seen.dialogs.push(dialog.message());
        void dialog.dismiss();
    });
    page.on('pageerror', (error) => seen.errors.push(String(error)));
    page.on('console', (message) => {
        if (message.type() === 'error') seen.errors.push(message.text());
    });
    await page.exposeFunction('reportViolation', (what) => seen.violations.push(what));
    await page.addInitScript(() => {
        document.addEventListener('securitypolicyviolation', (event) => {
            window.reportViolation(`${event.violatedDirective} ${event.blockedURI}`);
        });
    });
    await page.goto(url);
    await page.waitForSelector('html[data-ready]', { state: 'attached', timeout: 60_000 });
    return { page, seen, close: () => context.close() };
}

/** Asks for all rows of a table. */
export async function showAll(scope, name) {
    const button = scope.locator(`.table:has(table[data-table="${name}"]) .more:not([hidden]) button`);
    if ((await button.count()) > 0) await button.click();
}

/** The raw values of a table: id of the row to key of the column to value, or [value, count]. */
export const tableValues = (scope, name, nth = 0) =>
    scope.locator(`table[data-table="${name}"]`).nth(nth).evaluate(readTable);

/** Runs in the page. */
function readTable(table) {
    const number = (text) =>
        text === undefined || text === '' || Number.isNaN(Number(text)) ? text : Number(text);
    const cells = (row) => {
        const found = [...row.querySelectorAll('[data-key]')].map((cell) => {
            const { key, value, count } = cell.dataset;
            return [key, count === undefined ? number(value) : [number(value), number(count)]];
        });
        return Object.fromEntries(found);
    };
    const body = [...table.tBodies[0].rows].filter((row) => row.dataset.id !== undefined);
    const total = table.tFoot?.rows[0];
    return {
        rows: Object.fromEntries(body.map((row) => [row.dataset.id, cells(row)])),
        total: total ? cells(total) : null,
    };
}
