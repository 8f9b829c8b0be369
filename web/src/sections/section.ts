import { h, uniqueId } from '../dom';
import type { View } from '../view';

/** A part of the page for one run; null where the run has no data for it. */
export type Builder = (view: View) => HTMLElement | null;

/** A heading with what belongs to it, a landmark for screen readers. */
export function panel(name: string, title: string, ...content: (Node | null)[]): HTMLElement {
    const id = uniqueId(name);
    const heading = h('h3', { id }, title);
    return h('div', { class: 'panel', role: 'group', 'aria-labelledby': id }, heading, ...content);
}

export const note = (text: string): HTMLParagraphElement => h('p', { class: 'note' }, text);
