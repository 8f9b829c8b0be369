import { commandLine, rangeOptions, report } from '../command';
import { h } from '../dom';
import type { View } from '../view';

/** A name with the process below it, if there are several. */
export const named = (name: string, process: string, full = name): Node =>
    h(
        'span',
        { class: 'site' },
        h('span', { class: 'elided', title: full }, name),
        process ? h('small', {}, process) : null,
    );

/** The command of a table, for the range. */
export function ofRange(view: View, options: string): HTMLElement {
    const command = commandLine();
    view.on(['range'], () => command.show(report(view, `${options}${rangeOptions(view)} --top all`)));
    return command.element;
}
