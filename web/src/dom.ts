import { printable } from './format';

export type Child = Node | string | null | undefined | false;
type Listener = (event: never) => void;
/** Attributes by name; functions are listeners of the event after `on`. */
type Props = Record<string, string | number | boolean | null | undefined | Listener>;

/** An element. Text becomes text nodes, never markup. */
export function h<K extends keyof HTMLElementTagNameMap>(
    tag: K,
    props: Props = {},
    ...children: Child[]
): HTMLElementTagNameMap[K] {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(props)) {
        if (typeof value === 'function') {
            element.addEventListener(name.slice(2), value as EventListener);
        } else if (value !== false && value !== null && value !== undefined) {
            element.setAttribute(name, value === true ? '' : printable(String(value)));
        }
    }
    fill(element, ...children);
    return element;
}

/** Replaces what is in `parent`. */
export function fill(parent: Element, ...children: Child[]): void {
    const shown = children.filter((child) => child || child === '') as (Node | string)[];
    parent.replaceChildren(...shown.map((child) => (typeof child === 'string' ? printable(child) : child)));
}

let ids = 0;
/** An id that is used once in the page. */
export const uniqueId = (stem: string): string => `${stem}-${++ids}`;

export function choice<V extends string>(
    label: string,
    options: [V, string][],
    chosen: V,
    changed: (value: V) => void,
): HTMLLabelElement {
    const select = h(
        'select',
        { 'aria-label': label, onchange: () => changed(select.value as V) },
        ...options.map(([value, text]) => h('option', { value, selected: value === chosen }, text)),
    );
    return h('label', {}, `${label} `, select);
}

/** A part that is opened on demand. */
export const details = (summary: string, ...content: Child[]): HTMLDetailsElement =>
    h('details', {}, h('summary', {}, summary), ...content);

/** A heading with what belongs to it, a landmark for screen readers. */
export function panel(title: string, ...content: Child[]): HTMLElement {
    const id = uniqueId('panel');
    return h(
        'div',
        { class: 'panel', role: 'group', 'aria-labelledby': id },
        h('h3', { id }, title),
        ...content,
    );
}

export const note = (...content: Child[]): HTMLParagraphElement => h('p', { class: 'note' }, ...content);

/** A name with something smaller below it. */
export const named = (name: string, below: string, full = name): Node =>
    h('span', { class: 'name', title: full }, name, below ? h('small', {}, below) : null);

/** A key to a colour of a chart; `full` is what it stands for. */
export function swatch(color: string, text: string, full = text): HTMLElement {
    const box = h('span', { class: 'swatch', 'aria-hidden': 'true' });
    box.style.background = color;
    return h('span', { class: 'key', title: full }, box, text);
}
