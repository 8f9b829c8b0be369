import { h } from '../dom';
import type { View } from '../view';
import { copyTable } from './copies';
import { gpus } from './gpus';
import { kernelTable } from './kernels';
import { panel } from './section';

/** Busy time, kernels and copies. */
export function work(view: View): HTMLElement | null {
    const { kernels, copies } = view.run;
    const busy = gpus(view);
    if (!busy && kernels.length === 0 && copies.length === 0) return null;
    return h(
        'div',
        {},
        busy && panel('busy', 'Busy time', busy),
        kernels.length ? panel('kernels', 'Kernels', kernelTable(view)) : null,
        copies.length ? panel('copies', 'Copies', copyTable(view)) : null,
    );
}
