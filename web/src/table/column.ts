export interface Column<T> {
    key: string;
    title: string;
    /** What the cell shows. */
    cell: (row: T) => Node | string;
    /** What it is sorted by, and its raw value for numbers. */
    value: (row: T) => number | string | null;
    text?: boolean;
    hint?: string;
    /** Further raw values of the cell, as data attributes. */
    data?: (row: T) => Record<string, string | number>;
    /** What the last line shows below the column. */
    total?: (rows: T[]) => { show: string; value: number; data?: Record<string, string | number> };
}

export interface TableOptions<T> {
    name: string;
    caption: string;
    columns: Column<T>[];
    sort: string;
    id: (row: T) => string;
    /** What a row shows when it is opened. */
    detail?: (row: T) => Node;
    /** Called for the row that is chosen, with null if there is none. */
    choose?: (row: T | null) => void;
    empty?: string;
}

/** Orders values of a column; what is missing comes first. */
export function compare(a: number | string | null, b: number | string | null): number {
    if (a === null || b === null) return a === b ? 0 : a === null ? -1 : 1;
    if (typeof a === 'number' && typeof b === 'number') return a - b;
    return String(a).localeCompare(String(b), 'en', { numeric: true });
}
