import { fill, h } from './dom';
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

/** `gpuprobe report FILE` with these options. */
export const report = (view: View, options: string): string =>
    `gpuprobe report ${quoted(view.run.file)} ${options}`;

async function copy(text: string, button: HTMLButtonElement, label: string): Promise<void> {
    try {
        await navigator.clipboard.writeText(text);
        button.textContent = 'Copied';
    } catch {
        button.textContent = copyBySelection(text) ? 'Copied' : 'Not copied';
    }
    setTimeout(() => (button.textContent = label), 1500);
}

/** For pages that may not use the clipboard. */
function copyBySelection(text: string): boolean {
    const area = h('textarea', { 'aria-hidden': 'true', class: 'hidden', readonly: true });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
}

function copyButton(label: string, says: string, text: () => string): HTMLButtonElement {
    const button = h(
        'button',
        { type: 'button', 'aria-label': says, onclick: () => void copy(text(), button, label) },
        label,
    );
    return button;
}

/** The command, in text and with `--format json`, that gives the figures of a section. */
export function commandLine(): { element: HTMLElement; show: (command: string) => void } {
    let command = '';
    const code = h('code');
    const element = h(
        'p',
        { class: 'command' },
        h('span', { class: 'prompt' }, 'same figures'),
        code,
        copyButton('Copy', 'copy the command for text', () => command),
        copyButton('Copy for JSON', 'copy the command for JSON', () => `${command} --format json`),
    );
    const show = (next: string): void => {
        command = element.dataset.command = next;
        fill(code, command, h('span', { class: 'optional' }, ' --format json'));
    };
    return { element, show };
}
