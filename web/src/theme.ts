/** Colours of areas, told apart by people with colour-blindness too (Paul Tol, bright). */
const AREAS = ['#4477aa', '#66ccee', '#228833', '#ccbb44', '#ee6677', '#aa3377', '#ee8866'];
export const COLORS = AREAS.length;

/** The colour of the area with this number; those beyond the last share one. */
export const area = (index: number): string => AREAS[index] ?? '#a3abb5';

/** A colour of the style sheet, for canvases. */
export const css = (name: string): string =>
    getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);

/** Calls `listener` when the colours change between light, dark and print, which is light. */
export function onTheme(listener: () => void): void {
    matchMedia('screen and (prefers-color-scheme: dark)').addEventListener('change', listener);
}
