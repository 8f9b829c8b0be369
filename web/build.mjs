// Writes dist/report.html, the page with all that it needs but the data. The same sources give the
// same bytes: with --check, the file is compared instead.

import { createHash } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

/** Bundles an entry point into one minified string. */
async function bundled(entry, banner) {
    const result = await build({
        entryPoints: [here(entry)],
        bundle: true,
        minify: true,
        write: false,
        format: 'iife',
        target: ['chrome100', 'firefox113', 'safari16.4'],
        charset: 'utf8',
        legalComments: 'none',
        banner,
        logLevel: 'warning',
    });
    return result.outputFiles[0].text.trim();
}

/** The source expression of a content security policy that allows exactly this inlined text. */
const allowed = (text) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

/** The licence of uPlot, which is in the bundle, as a comment. */
async function licence() {
    const text = await readFile(here('node_modules/uplot/LICENSE'), 'utf8');
    return `/*! uPlot 1.6.32\n${text.trim()}\n*/`;
}

const comment = await licence();
const script = await bundled('src/main.ts', { js: comment });
const style = await bundled('src/styles/index.css');
if (/<\/(script|style)|<!--/i.test(script + style)) {
    throw new Error('the bundle has text that would end its element');
}
const policy = [
    "default-src 'none'",
    `script-src ${allowed(script)}`,
    `style-src ${allowed(style)}`,
    "base-uri 'none'",
    "form-action 'none'",
].join('; ');
const parts = { POLICY: policy, STYLE: style, SCRIPT: script };
const template = await readFile(here('src/page.html'), 'utf8');
const page = template.replace(/@(POLICY|STYLE|SCRIPT)@/g, (_, name) => parts[name]);
if (page.split('@DATA@').length !== 2) {
    throw new Error('the page needs exactly one @DATA@');
}
const output = here('dist/report.html');
if (process.argv.includes('--check')) {
    if ((await readFile(output, 'utf8')) !== page) {
        throw new Error('dist/report.html is not what the sources give: npm run build');
    }
} else {
    await mkdir(here('dist'), { recursive: true });
    await writeFile(output, page);
    console.log(`dist/report.html: ${Buffer.byteLength(page)} bytes`);
}
