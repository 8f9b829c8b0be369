import { add, fill, h, scroller } from '../dom';
import { count } from '../format';
import { type Column, type TableOptions, compare } from './column';
import { TableHead } from './head';

/** Rows shown before "Show all" is asked for. */
const FIRST = 100;
/** With more rows than that, new figures show the first rows again: drawing all takes seconds. */
const MANY = 1000;

/** A table that is sorted by its headings and shows the first rows only until asked for all. */
export class Table<T> {
    readonly element: HTMLElement;
    private rows: T[] = [];
    private all = false;
    private sortKey: string;
    private descending = true;
    private chosen: string | null = null;
    private readonly open = new Set<string>();
    private readonly head: TableHead<T>;
    private readonly body = h('tbody');
    private readonly foot = h('tfoot');
    private readonly first = h('span');
    private readonly showAll = h('button', {
        type: 'button',
        onclick: () => {
            this.all = true;
            this.draw();
        },
    });
    private readonly more = h('p', { class: 'more' }, this.first, this.showAll);

    constructor(private readonly options: TableOptions<T>) {
        this.sortKey = options.sort;
        this.descending = !options.columns.find((one) => one.key === options.sort)?.text;
        this.head = new TableHead(options.columns, (column) => this.sortBy(column));
        const caption = h('caption', {}, options.caption);
        const table = h(
            'table',
            { 'data-table': options.name },
            caption,
            this.head.element,
            this.body,
            this.foot,
        );
        this.element = h('div', { class: 'table' }, scroller(options.caption, table), this.more);
    }

    show(rows: T[]): void {
        this.rows = rows;
        if (rows.length > MANY) this.all = false;
        const chosen = rows.find((row) => this.options.id(row) === this.chosen) ?? this.sorted()[0];
        if (this.options.choose) this.chosen = chosen ? this.options.id(chosen) : null;
        this.draw();
        this.options.choose?.(chosen ?? null);
    }

    /** Sorts by a column, the largest first. */
    sort(key: string): void {
        this.sortKey = key;
        this.descending = true;
    }

    private draw(): void {
        this.head.show(this.sortKey, this.descending);
        const sorted = this.sorted();
        const shown = this.all ? sorted : sorted.slice(0, FIRST);
        const rows = shown.flatMap((row) => this.row(row));
        this.body.replaceChildren(...rows);
        if (rows.length === 0) add(this.body, this.line(this.options.empty ?? 'nothing in this range'));
        this.drawFoot();
        this.drawMore(shown.length);
    }

    private line(content: Node | string): HTMLTableRowElement {
        return h('tr', { class: 'line' }, h('td', { colspan: this.options.columns.length }, content));
    }

    private sorted(): T[] {
        const column = this.options.columns.find((one) => one.key === this.sortKey)!;
        const sign = this.descending ? -1 : 1;
        const keyed = this.rows.map((row) => ({ row, value: column.value(row) }));
        keyed.sort((a, b) => sign * compare(a.value, b.value));
        return keyed.map(({ row }) => row);
    }

    private sortBy(column: Column<T>): void {
        this.descending = this.sortKey === column.key ? !this.descending : !column.text;
        this.sortKey = column.key;
        this.draw();
    }

    private row(row: T): HTMLTableRowElement[] {
        const id = this.options.id(row);
        const line = h('tr', { 'data-id': id });
        this.options.columns.forEach((column, index) => line.append(this.cell(row, line, column, index)));
        if (this.options.choose) this.makeChoosable(line, row);
        return this.open.has(id) ? [line, this.detailLine(row)] : [line];
    }

    private cell(row: T, line: HTMLTableRowElement, column: Column<T>, index: number): HTMLTableCellElement {
        const value = column.value(row);
        const cell = h(index === 0 ? 'th' : 'td', {
            scope: index === 0 && 'row',
            class: column.text && 'text',
            'data-key': column.key,
            'data-value': value,
        });
        for (const [key, one] of Object.entries(column.data?.(row) ?? {})) cell.dataset[key] = `${one}`;
        const content = column.cell(row);
        if (index > 0 || !(this.options.detail || this.options.choose)) add(cell, content);
        else add(cell, this.options.detail ? this.opener(row, line, content) : this.picker(row, content));
        return cell;
    }

    private opener(row: T, line: HTMLTableRowElement, content: Node | string): HTMLButtonElement {
        const id = this.options.id(row);
        const button = h(
            'button',
            {
                type: 'button',
                class: 'opener',
                'aria-expanded': String(this.open.has(id)),
                'aria-label': `call stack of ${line.dataset.id ?? id}`,
                onclick: () => {
                    const opened = !this.open.delete(id);
                    if (opened) line.after(this.detailLine(row));
                    else line.nextElementSibling?.remove();
                    if (opened) this.open.add(id);
                    button.setAttribute('aria-expanded', String(opened));
                },
            },
            content,
        );
        return button;
    }

    private detailLine(row: T): HTMLTableRowElement {
        const line = this.line(this.options.detail!(row));
        line.classList.add('detail');
        return line;
    }

    private picker(row: T, content: Node | string): HTMLButtonElement {
        const pressed = String(this.options.id(row) === this.chosen);
        return h(
            'button',
            {
                type: 'button',
                class: 'picker',
                'aria-pressed': pressed,
                onclick: () => this.pick(row),
            },
            content,
        );
    }

    private makeChoosable(line: HTMLTableRowElement, row: T): void {
        line.classList.toggle('chosen', this.options.id(row) === this.chosen);
        line.addEventListener('click', () => this.pick(row));
    }

    private pick(row: T): void {
        this.chosen = this.options.id(row);
        for (const line of this.body.rows) {
            const chosen = line.dataset.id === this.chosen;
            line.classList.toggle('chosen', chosen);
            line.querySelector('.picker')?.setAttribute('aria-pressed', String(chosen));
        }
        this.options.choose?.(row);
    }

    private drawFoot(): void {
        const { columns } = this.options;
        if (!columns.some((column) => column.total)) return;
        const cells = columns.map((column, index) => {
            if (index === 0) return h('th', { scope: 'row' }, 'total');
            const total = column.total?.(this.rows);
            const cell = h('td', { 'data-key': column.key, 'data-value': total?.value }, total?.show);
            for (const [key, one] of Object.entries(total?.data ?? {})) cell.dataset[key] = `${one}`;
            return cell;
        });
        fill(this.foot, h('tr', {}, ...cells));
    }

    private drawMore(shown: number): void {
        const rest = this.rows.length - shown;
        this.first.textContent = `The first ${count(shown)} rows. `;
        this.showAll.textContent = `Show all ${count(this.rows.length)}`;
        this.more.hidden = rest === 0;
    }
}
