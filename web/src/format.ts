const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];

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

function scaled(bytes: number): [number, string] {
    let value = bytes;
    let unit = 0;
    while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
        value /= 1024;
        unit += 1;
    }
    return [value, UNITS[unit] ?? 'B'];
}

/** A difference in size, with its sign. */
export const change = (bytes: number): string => (bytes > 0 ? '+' : '') + size(bytes);

/** Three or four digits and the unit that fits, as gpuprobe prints durations. */
export function duration(ns: number): string {
    const length = Math.abs(ns);
    if (length < 1e3) return `${ns.toFixed(0)} ns`;
    if (length < 1e6) return `${(ns / 1e3).toFixed(2)} us`;
    if (length < 1e9) return `${(ns / 1e6).toFixed(3)} ms`;
    return `${(ns / 1e9).toFixed(3)} s`;
}

/** A moment of the run in seconds, to the nanosecond if need be. */
export const seconds = (ns: number): string => String(Number((ns / 1e9).toFixed(9)));

/** A moment of the run for people: enough digits to tell neighbours apart. */
export function moment(ns: number, span: number): string {
    const digits = span <= 0 ? 3 : Math.min(9, Math.max(3, Math.ceil(-Math.log10(span / 1e9)) + 3));
    return `${(ns / 1e9).toFixed(digits)} s`;
}

export const count = (value: number): string => value.toLocaleString('en-US');

/** Per cent of `whole`, one decimal. */
export function share(part: number, whole: number): string {
    if (whole <= 0) return '';
    const value = (100 * part) / whole;
    return value > 0 && value < 0.1 ? '<0.1 %' : `${value.toFixed(1)} %`;
}

export const plural = (n: number, noun: string): string => {
    const many = /(ch|s)$/.test(noun)
        ? `${noun}es`
        : noun.endsWith('y')
          ? `${noun.slice(0, -1)}ies`
          : `${noun}s`;
    return `${count(n)} ${n === 1 ? noun : many}`;
};

// Control characters, line separators and bidirectional controls: a traced program chooses its
// names, and these must not reorder or hide what is shown.
// eslint-disable-next-line no-control-regex
const OBEYED = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** `text` with characters escaped that control how text is shown. */
export const printable = (text: string): string =>
    text.replace(OBEYED, (c) => `\\u{${c.charCodeAt(0).toString(16)}}`);
