const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];

function scaled(bytes: number): [number, string] {
    let value = bytes;
    let unit = 0;
    for (; Math.abs(value) >= 1024 && unit < UNITS.length - 1; unit += 1) value /= 1024;
    return [value, UNITS[unit]!];
}

/** Binary units with two decimals from KiB on, as gpuprobe prints sizes. */
export function size(bytes: number): string {
    const [value, unit] = scaled(bytes);
    return `${value.toFixed(unit === 'B' ? 0 : 2)} ${unit}`;
}

/** A size for an axis: no decimals that say nothing. */
export function shortSize(bytes: number): string {
    const [value, unit] = scaled(bytes);
    return `${Number(value.toFixed(2))} ${unit}`;
}

/** Three or four digits and the unit that fits, as gpuprobe prints durations. */
export function duration(ns: number): string {
    if (ns < 1e3) return `${ns.toFixed(0)} ns`;
    if (ns < 1e6) return `${(ns / 1e3).toFixed(2)} us`;
    if (ns < 1e9) return `${(ns / 1e6).toFixed(3)} ms`;
    return `${(ns / 1e9).toFixed(3)} s`;
}

/** A moment of the run for people: enough digits to tell neighbours apart. */
export function moment(ns: number, span: number): string {
    const digits = span <= 0 ? 3 : Math.min(9, Math.max(3, Math.ceil(-Math.log10(span / 1e9)) + 3));
    return `${(ns / 1e9).toFixed(digits)} s`;
}

export const count = (value: number): string => value.toLocaleString('en-US');

/** Per cent of `whole`, one decimal. */
export function share(part: number, whole: number): string {
    const value = whole > 0 ? (100 * part) / whole : 0;
    return value > 0 && value < 0.1 ? '<0.1 %' : `${value.toFixed(1)} %`;
}

export function plural(n: number, noun: string): string {
    const ending = /(ch|s)$/.test(noun) ? 'es' : 's';
    const many = noun.endsWith('y') ? `${noun.slice(0, -1)}ies` : noun + ending;
    return `${count(n)} ${n === 1 ? noun : many}`;
}

// Control characters, line separators and bidirectional controls: a traced program chooses its
// names, and these must not reorder or hide what is shown.
const OBEYED = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** `text` with characters escaped that control how text is shown. */
export const printable = (text: string): string =>
    text.replace(OBEYED, (c) => `\\u{${c.charCodeAt(0).toString(16)}}`);
