import { commandLine, report } from '../command';
import { h } from '../dom';
import type { View } from '../view';
import { note } from './section';

const WHOLE = 'The command lists the whole run: --from and --to select memory events.';

/** A name with the process below it, if there are several. */
export const named = (name: string, process: string, full = name): Node =>
    h(
        'span',
        { class: 'site' },
        h('span', { class: 'elided', title: full }, name),
        process ? h('small', {}, process) : null,
    );

/** The command of a table, which has no range. */
export function wholeRun(view: View, options: string): HTMLElement {
    const command = commandLine();
    command.show(report(view, options));
    const about = note(WHOLE);
    view.on(['range'], () => (about.hidden = view.whole));
    return h('div', {}, command.element, about);
}
