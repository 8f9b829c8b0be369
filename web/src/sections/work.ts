import { h, panel } from '../dom';
import type { View } from '../view';
import { copySiteTable, copyTable } from './copies';
import { busyTime } from './gpus';
import { kernelTable } from './kernels';

/** Busy time, kernels and copies. */
export function work(view: View): HTMLElement | null {
    const { gpus, kernels, copies, copy_sites } = view.run;
    const parts = [
        gpus.length > 0 && panel('Busy time', busyTime(view)),
        kernels.length > 0 && panel('Kernels', kernelTable(view)),
        copies.length > 0 && panel('Copies', copyTable(view), copy_sites.length > 0 && copySiteTable(view)),
    ];
    return parts.some((part) => part) ? h('div', {}, ...parts) : null;
}
