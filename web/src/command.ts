import { h } from './dom';
import type { View } from './view';

/** A word for a shell; a file name that begins with a dash is no option. */
export function quoted(word: string): string {
    const name = word.startsWith('-') ? `./${word}` : word;
    return /^[\w@%+=:,./-]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`;
}

/** `--from` and `--to` of the range; neither for the whole run. */
export function rangeOptions(view: View): string {
    // A time before the first memory event looks like an option.
    const option = (name: string, ns: number): string => ` --${name}${ns < 0 ? '=' : ' '}${ns}ns`;
    const from = view.from > 0 ? option('from', view.edges[view.from]!) : '';
    const to = view.to < view.bins ? option('to', view.edges[view.to]! - 1) : '';
    return from + to;
}

/** The command of gpuprobe that gives the figures of a section; `options` are those of `report`. */
export class Command {
    private command = '';
    private readonly code = h('code');
    readonly element = h(
        'p',
        { class: 'command' },
        'in a terminal',
        this.code,
        h(
            'button',
            { type: 'button', 'aria-label': 'copy the command', onclick: () => void this.copy() },
            'Copy',
        ),
    );

    show(command: string): void {
        this.command = this.element.dataset.command = command;
        this.code.replaceChildren(h('span', {}, command), h('span', { class: 'note' }, ' --format json'));
    }

    private async copy(): Promise<void> {
        await navigator.clipboard.writeText(this.command);
        const button = this.element.querySelector('button')!;
        button.textContent = 'Copied';
        setTimeout(() => (button.textContent = 'Copy'), 1500);
    }
}

/** `gpuprobe report FILE` with options that follow the range. */
export function reportCommand(view: View, options: () => string): HTMLElement {
    const command = new Command();
    view.on(() => command.show(`gpuprobe report ${quoted(view.run.file)} ${options()}`));
    return command.element;
}

export function fixedCommand(text: string): HTMLElement {
    const command = new Command();
    command.show(text);
    return command.element;
}
