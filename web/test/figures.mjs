// Opens a page, brushes a range and prints the figures that it shows, as JSON:
//
//     node web/test/figures.mjs FILE.html [--from-edge I --to-edge J] [--run N]
//
// GPU memory only, in bytes. With two runs, N is 0 for the one before (the default) or 1.

import { readFile } from 'node:fs/promises';
import { gunzipSync } from 'node:zlib';
import { launch, open, showAll, tableValues } from './browser.mjs';

const [file, ...rest] = process.argv.slice(2);
const option = (name) => (rest.includes(name) ? Number(rest[rest.indexOf(name) + 1]) : null);
if (!file || rest.some((one) => one.startsWith('--') && Number.isNaN(option(one)))) {
    console.error('usage: node figures.mjs FILE.html [--from-edge I --to-edge J] [--run N]');
    process.exit(2);
}

const data = /id="data">([^<]*)</.exec(await readFile(file, 'utf8'))[1];
const { runs } = JSON.parse(gunzipSync(Buffer.from(data, 'base64')));
const at = option('--run') ?? 0;
const { edges_ns: edges } = runs[at];

const browser = await launch();
const { page, seen } = await open(browser, file);
/** Tables of this run only: each section has a cell for each run. */
const cell = page.locator(`.cell:nth-child(${at + 1})`);

async function brush(name, edge) {
    if (edge === null) return;
    const input = page.locator('.range').nth(at).locator(`input[name="${name}"]`);
    await input.fill(String(edges[edge] / 1e9));
    await input.dispatchEvent('change');
}

const values = async (name) => {
    const table = cell.locator(`table[data-table="${name}"]`);
    if ((await table.count()) === 0) return { rows: {}, total: null };
    await showAll(cell, name);
    return tableValues(cell, name);
};

const edgeOrNull = (text) => (text === '' || text === undefined ? null : Number(text));

/** Sums of call sites; an amount is [bytes, allocations]. */
const ofSite = ({ never_freed, peak }) => ({
    never_freed_bytes: never_freed[0],
    never_freed_allocations: never_freed[1],
    at_peak_bytes: peak[0],
    at_peak_allocations: peak[1],
});

await brush('from', option('--from-edge'));
await brush('to', option('--to-edge'));
const range = await page
    .locator('.range')
    .nth(at)
    .evaluate((bar) => ({ ...bar.dataset }));
const sites = await values('sites');
const kernels = await values('kernels');
const copies = await values('copies');

const launches = {};
for (const { name, launches: n } of Object.values(kernels.rows)) launches[name] = (launches[name] ?? 0) + n;
const copied = {};
for (const row of Object.values(copies.rows)) {
    const sums = (copied[`${row.direction} ${row.mode}`] ??= [0, 0]);
    sums[0] += row.copies;
    sums[1] += row.bytes;
}
const commands = await cell
    .locator('[data-command]')
    .evaluateAll((all) => all.map((one) => one.dataset.command));
const figures = {
    ...(sites.total ? ofSite(sites.total) : {}),
    peak_bytes: edgeOrNull(range.peakBytes),
    peak_ns: edgeOrNull(range.peakNs),
    sites: Object.fromEntries(Object.entries(sites.rows).map(([id, row]) => [id, ofSite(row)])),
    kernels: launches,
    copies: copied,
    commands,
    violations: seen.violations.length,
    requests: seen.requests.length,
    errors: seen.errors,
};
console.log(JSON.stringify(figures, null, 2));
await browser.close();
