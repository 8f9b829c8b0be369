// Writes dist/report.html, the page with all that it needs but the data. The same sources give the
// same bytes: with --check, the file is compared instead.

import { createHash } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

/** The licences of what is in the bundle, as a comment. */
const licences = (await readFile(here('LICENSES'), 'utf8')).trim();
const { outputFiles } = await build({
    entryPoints: [here('src/main.ts')],
    bundle: true,
    minify: true,
    write: false,
    outdir: here('dist'),
    format: 'iife',
    target: ['chrome105', 'firefox121', 'safari16.4'],
    charset: 'utf8',
    legalComments: 'none',
    banner: { js: `/*!\n${licences}\n*/` },
    logLevel: 'warning',
});
const output = (ending) => outputFiles.find(({ path }) => path.endsWith(ending)).text.trim();
const [script, style] = [output('.js'), output('.css')];
if (/<\/(script|style)|<!--/i.test(script + style)) {
    throw new Error('the bundle has text that would end its element');
}
/** The source expression of a content security policy that allows exactly this inlined text. */
const allowed = (text) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
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
const path = here('dist/report.html');
if (process.argv.includes('--check')) {
    if ((await readFile(path, 'utf8')) !== page) {
        throw new Error('dist/report.html is not what the sources give: npm run build');
    }
} else {
    await mkdir(here('dist'), { recursive: true });
    await writeFile(path, page);
    console.log(`dist/report.html: ${Buffer.byteLength(page)} bytes`);
}
