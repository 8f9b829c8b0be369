import { printable } from './format';

type Child = Node | string | null | undefined | false;
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
        } else if (value === true) {
            element.setAttribute(name, '');
        } else if (value !== false && value !== null && value !== undefined) {
            element.setAttribute(name, String(value));
        }
    }
    add(element, ...children);
    return element;
}

export function add(parent: Node, ...children: Child[]): void {
    for (const child of children) {
        if (child === null || child === undefined || child === false) continue;
        parent.appendChild(typeof child === 'string' ? document.createTextNode(printable(child)) : child);
    }
}

/** Replaces what is in `parent`. */
export function fill(parent: Element, ...children: Child[]): void {
    parent.replaceChildren();
    add(parent, ...children);
}

let ids = 0;
/** An id that is used once in the page. */
export const uniqueId = (stem: string): string => `${stem}-${++ids}`;

/** Radio buttons in a row, of which one is chosen. */
export function choice<V extends string>(
    legend: string,
    options: [V, string][],
    chosen: V,
    changed: (value: V) => void,
): HTMLFieldSetElement {
    const name = uniqueId('choice');
    const labels = options.map(([value, text]) =>
        h(
            'label',
            {},
            h('input', {
                type: 'radio',
                name,
                value,
                checked: value === chosen,
                onchange: () => changed(value),
            }),
            h('span', {}, text),
        ),
    );
    return h('fieldset', { class: 'choice' }, h('legend', {}, legend), ...labels);
}

export function checkbox(text: string, changed: (on: boolean) => void): HTMLLabelElement {
    const input = h('input', { type: 'checkbox', onchange: () => changed(input.checked) });
    return h('label', { class: 'check' }, input, h('span', {}, text));
}

/** A part that is opened on demand. */
export const details = (summary: string, ...content: Child[]): HTMLDetailsElement =>
    h('details', {}, h('summary', {}, summary), ...content);

/** A region that scrolls sideways by itself, by keyboard too. */
export const scroller = (label: string, content: Node): HTMLDivElement =>
    h('div', { class: 'scroller', tabindex: 0, role: 'region', 'aria-label': label }, content);
