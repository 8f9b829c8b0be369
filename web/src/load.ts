import type { ReportDocument } from './document';

/**
 * The document in the element `data`: base64 of JSON compressed with gzip.
 * @throws if the element is empty or its text is no such thing.
 */
export async function load(): Promise<ReportDocument> {
    const text = document.getElementById('data')?.textContent?.trim() ?? '';
    if (typeof DecompressionStream === 'undefined') {
        throw new Error('this browser has no DecompressionStream; use one of 2023 or later');
    }
    const raw = atob(text);
    const bytes = new Uint8Array(raw.length);
    for (let at = 0; at < raw.length; at += 1) bytes[at] = raw.charCodeAt(at);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
    const loaded = (await new Response(stream).json()) as ReportDocument;
    if (loaded.version !== 1) throw new Error(`the data are of version ${loaded.version}, not 1`);
    return loaded;
}
