import { h } from '../dom';
import type { Column } from './column';

/** The headings of a table, each a button that sorts by its column. */
export class TableHead<T> {
    readonly element: HTMLTableSectionElement;
    private readonly cells: HTMLTableCellElement[];
    private readonly arrows: HTMLElement[] = [];

    constructor(
        private readonly columns: Column<T>[],
        sortBy: (column: Column<T>) => void,
    ) {
        this.cells = columns.map((column) => this.cell(column, sortBy));
        this.element = h('thead', {}, h('tr', {}, ...this.cells));
    }

    private cell(column: Column<T>, sortBy: (column: Column<T>) => void): HTMLTableCellElement {
        const arrow = h('span', { class: 'arrow', 'aria-hidden': 'true' });
        this.arrows.push(arrow);
        const button = h(
            'button',
            { type: 'button', title: column.hint, onclick: () => sortBy(column) },
            ...(column.text ? [column.title, arrow] : [arrow, column.title]),
        );
        return h('th', { scope: 'col', class: column.text && 'text' }, button);
    }

    /** Marks the column that the table is sorted by. */
    show(sortKey: string, descending: boolean): void {
        this.columns.forEach(({ key }, at) => {
            const order = descending ? 'descending' : 'ascending';
            this.cells[at]!.setAttribute('aria-sort', key === sortKey ? order : 'none');
            this.arrows[at]!.textContent = key !== sortKey ? '' : descending ? '▾' : '▴';
            this.arrows[at]!.hidden = key !== sortKey;
        });
    }
}
