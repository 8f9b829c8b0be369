import { fill, h } from './dom';
import type { View } from './view';

/** A word for a shell; a file name that begins with a dash is no option. */
export function quoted(word: string): string {
    const name = word.startsWith('-') ? `./${word}` : word;
    return /^[\w@%+=:,./-]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`;
}

/** `--from` and `--to` of the range; neither for the whole run. */
export function rangeOptions(view: View): string {
    const from = view.from > 0 && view.edges[view.from]! > 0 ? ` --from ${view.edges[view.from]}ns` : '';
    const to = view.to < view.bins ? ` --to ${view.edges[view.to]! - 1}ns` : '';
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

function copyButton(label: string, text: string, says: string): HTMLButtonElement {
    const button = h(
        'button',
        { type: 'button', 'aria-label': says, onclick: () => void copy(text, button, label) },
        label,
    );
    return button;
}

/**
 * The command that gives the figures of a section, which follows what is chosen. With `json`, it is
 * offered with `--format json` too.
 */
export function commandLine(json = true): {
    element: HTMLElement;
    show: (command: string) => void;
} {
    const element = h('p', { class: 'command' });
    const show = (command: string): void => {
        const asJson = `${command} --format json`;
        element.dataset.command = command;
        fill(
            element,
            h('span', { class: 'prompt' }, 'same figures'),
            h('code', {}, command, json && h('span', { class: 'optional' }, ' --format json')),
            copyButton('Copy', command, 'copy the command for text'),
            json && copyButton('Copy for JSON', asJson, 'copy the command for JSON'),
        );
    };
    return { element, show };
}
