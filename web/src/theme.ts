import { h } from './dom';

interface Colors {
    ink: string;
    muted: string;
    line: string;
    surface: string;
    accent: string;
    bad: string;
    shade: string;
    match: string;
    free: string;
    freeLine: string;
    python: [number, number, number];
    native: [number, number, number];
    api: [number, number, number];
    root: [number, number, number];
}

const LIGHT: Colors = {
    ink: '#1b2027',
    muted: '#57616e',
    line: '#e3e7ec',
    surface: '#ffffff',
    accent: '#0a5cb8',
    bad: '#b42318',
    shade: 'rgba(240, 242, 245, 0.72)',
    match: '#c2185b',
    free: '#e6e9ee',
    freeLine: '#c3cad3',
    python: [211, 58, 80],
    native: [36, 62, 80],
    api: [150, 26, 78],
    root: [215, 10, 86],
};
const DARK: Colors = {
    ink: '#e4e8ee',
    muted: '#9aa5b3',
    line: '#2b323c',
    surface: '#161a20',
    accent: '#6cb2ff',
    bad: '#ff8a7a',
    shade: 'rgba(15, 18, 22, 0.7)',
    match: '#f06ba0',
    free: '#2a313b',
    freeLine: '#46505d',
    python: [211, 46, 38],
    native: [34, 34, 35],
    api: [150, 20, 32],
    root: [215, 12, 26],
};

/** Areas of charts, told apart by people with colour-blindness too (Paul Tol, bright). */
const AREAS = ['#4477aa', '#66ccee', '#228833', '#ccbb44', '#ee6677', '#aa3377', '#ee8866'];
const REST = '#a3abb5';
const LINES = ['#1b2027', '#8a3a12', '#125a3c', '#5a287a'];
const LINES_DARK = ['#f2f4f7', '#ffb38a', '#8fe0bd', '#d5aef0'];

const print = matchMedia('print');
const dark = matchMedia('(prefers-color-scheme: dark)');
const listeners: (() => void)[] = [];
let chosen: 'light' | 'dark' | null = null;
let printing = false;

export const theme = (): 'light' | 'dark' =>
    printing || print.matches ? 'light' : (chosen ?? (dark.matches ? 'dark' : 'light'));

export const colors = (): Colors => (theme() === 'dark' ? DARK : LIGHT);

/** The colour of the area with this number; `rest` is of what has no colour for itself. */
export const area = (index: number, rest = false): string => (rest ? REST : (AREAS[index] ?? REST));

export const overlayLine = (index: number): string => {
    const lines = theme() === 'dark' ? LINES_DARK : LINES;
    return lines[index % lines.length]!;
};

export const hsl = ([hue, saturation, light]: [number, number, number], by = 0): string =>
    `hsl(${hue} ${saturation}% ${light + by}%)`;

/** Calls `listener` now and whenever the colours change. */
export function onTheme(listener: () => void): void {
    listeners.push(listener);
    listener();
}

function apply(): void {
    document.documentElement.dataset.theme = theme();
    for (const listener of listeners) listener();
}

/** A button that switches between light and dark; the system's choice comes first. */
export function themeButton(): HTMLButtonElement {
    const button = h('button', {
        type: 'button',
        class: 'theme',
        onclick: () => {
            chosen = theme() === 'dark' ? 'light' : 'dark';
            apply();
        },
    });
    onTheme(() => {
        button.textContent = theme() === 'dark' ? 'Light' : 'Dark';
        button.setAttribute('aria-label', `switch to ${theme() === 'dark' ? 'light' : 'dark'} colours`);
    });
    return button;
}

export function startTheme(): void {
    print.addEventListener('change', apply);
    dark.addEventListener('change', apply);
    addEventListener('beforeprint', () => {
        printing = true;
        apply();
    });
    addEventListener('afterprint', () => {
        printing = false;
        apply();
    });
    apply();
}
