import { type Child, fill, h } from './dom';
import { count } from './format';

/** Rows shown before "Show all" is asked for. */
const FIRST = 100;

type Value = number | string | null;
export interface Column<T> {
    key: string;
    title: string;
    /** What it is sorted by, and the raw value of its cells. */
    value: (row: T) => Value;
    show: (value: never, row: T) => Child;
    text?: boolean;
    hint?: string;
    /** Number of allocations of a value in bytes, as a second raw value. */
    count?: (row: T) => number;
    /** Whether the last line has its sum, of the rows that count. */
    total?: (row: T) => boolean;
    /** Shown in place of no value. */
    none?: string;
}

type More<T> = Partial<Pick<Column<T>, 'hint' | 'count' | 'total' | 'none'>>;

export const text = <T>(
    key: string,
    title: string,
    value: (row: T) => string,
    show: (value: string, row: T) => Child = (value) => value,
): Column<T> => ({ key, title, value, show, text: true });

export const number = <T>(
    key: string,
    title: string,
    value: (row: T) => number | null,
    show: (value: number, row: T) => Child = count,
    more: More<T> = {},
): Column<T> => ({ key, title, value, show, ...more });

export interface TableOptions<T> {
    name: string;
    caption: string;
    columns: Column<T>[];
    /** Key of the column that it is sorted by at first. */
    sort: string;
    id: (row: T) => string;
    /** What a row shows when it is opened. */
    detail?: (row: T) => Node;
    empty?: string;
}

const compare = (a: Value, b: Value): number =>
    typeof a === 'string' && typeof b === 'string'
        ? a.localeCompare(b, 'en', { numeric: true })
        : Number(a ?? -Infinity) - Number(b ?? -Infinity) || 0;

/** A table that is sorted by its headings, whose rows open to details. */
export class Table<T> {
    readonly element: HTMLElement;
    private rows: T[] = [];
    private sorted: Column<T>;
    private descending = true;
    private all = false;
    private readonly opened = new Set<string>();
    private readonly heads: [Column<T>, HTMLElement, HTMLElement][];
    private readonly body = h('tbody');
    private readonly foot = h('tfoot');
    private readonly first = h('span');
    private readonly allButton = h('button', { type: 'button', onclick: () => this.showAll() });
    private readonly more = h('p', { class: 'more' }, this.first, this.allButton);

    constructor(private readonly options: TableOptions<T>) {
        const { name, caption, columns, sort } = options;
        this.sorted = columns.find(({ key }) => key === sort) ?? columns[0]!;
        this.descending = !this.sorted.text;
        this.heads = columns.map((column) => this.heading(column));
        const head = h('thead', {}, h('tr', {}, ...this.heads.map(([, cell]) => cell)));
        const parts = [h('caption', {}, caption), head, this.body, this.foot];
        const table = h('table', { 'data-table': name }, ...parts);
        const scroller = h(
            'div',
            { class: 'scroller', tabindex: 0, role: 'region', 'aria-label': caption },
            table,
        );
        this.element = h('div', { class: 'table' }, scroller, this.more);
    }

    show(rows: T[], sort = this.sorted.key): void {
        this.rows = rows;
        if (sort !== this.sorted.key) this.descending = true;
        this.sorted = this.options.columns.find(({ key }) => key === sort)!;
        // Drawing more takes seconds.
        if (rows.length > 10 * FIRST) this.all = false;
        this.draw();
    }

    private draw(): void {
        const { value } = this.sorted;
        const sign = this.descending ? -1 : 1;
        const rows = [...this.rows].sort((a, b) => sign * compare(value(a), value(b)));
        const shown = this.all ? rows : rows.slice(0, FIRST);
        for (const [column, cell, arrow] of this.heads) {
            const is = column === this.sorted;
            cell.ariaSort = is ? (this.descending ? 'descending' : 'ascending') : 'none';
            arrow.textContent = is ? (this.descending ? ' ▾' : ' ▴') : '';
        }
        fill(this.body, ...shown.flatMap((row) => this.row(row)));
        if (rows.length === 0) fill(this.body, this.wide(this.options.empty ?? 'nothing in this range'));
        if (this.options.columns.some(({ total }) => total)) fill(this.foot, this.totals());
        this.more.hidden = shown.length === rows.length;
        this.first.textContent = `The first ${count(shown.length)} rows. `;
        this.allButton.textContent = `Show all ${count(rows.length)}`;
    }

    private showAll(): void {
        this.all = true;
        this.draw();
    }

    private heading(column: Column<T>): [Column<T>, HTMLElement, HTMLElement] {
        const sort = (): void => {
            this.descending = column === this.sorted ? !this.descending : !column.text;
            this.sorted = column;
            this.draw();
        };
        const arrow = h('span', { 'aria-hidden': 'true' });
        const button = h(
            'button',
            { type: 'button', title: column.hint, onclick: sort },
            column.title,
            arrow,
        );
        return [column, h('th', { scope: 'col', class: column.text && 'text' }, button), arrow];
    }

    private row(row: T): HTMLElement[] {
        const { columns, id, detail } = this.options;
        const key = id(row);
        const cells = columns.map((column, index) => {
            const value = column.value(row);
            const none = column.none && h('small', {}, column.none);
            const content = value === null ? none : column.show(value as never, row);
            return h(
                index === 0 ? 'th' : 'td',
                {
                    scope: index === 0 && 'row',
                    class: column.text && 'text',
                    'data-key': column.key,
                    'data-value': value,
                    'data-count': column.count?.(row),
                },
                index === 0 && detail ? this.opener(key, content) : content,
            );
        });
        const line = h('tr', { 'data-id': key }, ...cells);
        return detail && this.opened.has(key) ? [line, this.wide(detail(row))] : [line];
    }

    private opener(key: string, content: Child): HTMLElement {
        const open = this.opened.has(key);
        const toggle = (): void => {
            if (!this.opened.delete(key)) this.opened.add(key);
            this.draw();
            [...this.body.rows]
                .find((row) => row.dataset.id === key)
                ?.querySelector('button')
                ?.focus();
        };
        const props = { type: 'button', class: 'opener', 'aria-expanded': String(open), onclick: toggle };
        return h('button', props, content);
    }

    private wide(content: Child): HTMLElement {
        return h('tr', { class: 'wide' }, h('td', { colspan: this.options.columns.length }, content));
    }

    private totals(): HTMLElement {
        const cells = this.options.columns.map(({ key, total, value, count, show }, index) => {
            if (index === 0) return h('th', { scope: 'row' }, 'total');
            if (!total) return h('td');
            const rows = this.rows.filter(total);
            const sum = rows.reduce((all, row) => all + Number(value(row)), 0);
            const counted = count && rows.reduce((all, row) => all + count(row), 0);
            const props = { 'data-key': key, 'data-value': sum, 'data-count': counted };
            return h('td', props, show(sum as never, rows[0]!));
        });
        return h('tr', {}, ...cells);
    }
}
