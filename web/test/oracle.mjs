// The figures of a range, computed from the document change by change, the slow and plain way.

/** Changes of a stack as objects. */
function* changesOf({ changes }) {
    for (let at = 0; at < changes.length; at += 9) {
        const [bin, bytes, count, freedBytes, frees, heldBytes, held, peakBytes, peakCount] = changes.slice(
            at,
            at + 9,
        );
        yield { bin, bytes, count, freedBytes, frees, heldBytes, held, peakBytes, peakCount };
    }
}

/** The bin with the highest total within the range, the first of equals. */
export function peakBin(held, from, to) {
    const bins = held.bins.map(([ns, bytes], bin) => ({ ns, bytes, bin })).slice(from, to);
    return bins.reduce((best, one) => (one.bytes > best.bytes ? one : best));
}

/** What a stack has in the bins `from` up to, not including, `to`: [bytes, allocations] each. */
export function ofStack(held, stack, from, to) {
    const top = peakBin(held, from, to).bin;
    const sums = { live: [0, 0], peak: [0, 0], allocated: [0, 0], freed: [0, 0], never_freed: [0, 0] };
    const put = (name, bytes, count) => {
        sums[name][0] += bytes;
        sums[name][1] += count;
    };
    for (const one of changesOf(stack)) {
        const left = [one.bytes - one.freedBytes, one.count - one.frees];
        const live = [left[0] - one.heldBytes, left[1] - one.held];
        if (one.bin < to) put('never_freed', ...left);
        if (one.bin < to) put('live', ...live);
        if (one.bin >= from && one.bin < to) put('allocated', one.bytes, one.count);
        if (one.bin >= from && one.bin < to) put('freed', one.freedBytes, one.frees);
        if (one.bin < top) put('peak', ...live);
        if (one.bin === top) put('peak', one.peakBytes, one.peakCount);
    }
    return sums;
}

function addUp(into, sums) {
    for (const [name, [bytes, count]] of Object.entries(sums)) {
        into[name] ??= [0, 0];
        into[name][0] += bytes;
        into[name][1] += count;
    }
    return into;
}

/** Sums by call site, and of all; sites without anything in the range are left out. */
export function sites(held, from, to, host = false) {
    const rows = {};
    for (const stack of held.paths) {
        if (stack.host && !host) continue;
        const id =
            stack.site === null ? stack.function : `${stack.kind === 'tensors' ? 'T' : '#'}${stack.site}`;
        rows[id] = addUp(rows[id] ?? {}, ofStack(held, stack, from, to));
    }
    for (const [id, sums] of Object.entries(rows)) {
        if (
            Object.values(sums)
                .flat()
                .every((value) => value === 0)
        )
            delete rows[id];
    }
    const total = Object.values(rows).reduce((sum, one) => addUp(sum, one), {});
    return { rows, total };
}

/** Values of the flame graph by path of names; the outermost frame first. */
export function flame(run, from, to, measure, column, host = false) {
    const values = new Map();
    const text = (number) => {
        const [name, file, line, module, python] = run.frames[number];
        const base = (path) => path.split('/').at(-1);
        if (python) return file ? `${base(file)}${line ? `:${line}` : ''} ${name}` : name;
        return module ? `${name} (${base(module)})` : name;
    };
    for (const stack of run.memory.paths) {
        if (stack.host && !host) continue;
        const value = ofStack(run.memory, stack, from, to)[measure][column];
        const found = run.processes.find((one) => one.pid === stack.pid);
        const path = [
            `${found.comm} (${stack.pid})`,
            ...[...stack.stack].reverse().map(text),
            stack.function,
        ];
        for (let depth = 0; depth <= path.length; depth += 1) {
            const key = JSON.stringify(path.slice(0, depth));
            values.set(key, (values.get(key) ?? 0) + value);
        }
    }
    return values;
}

/** Bytes in stacks of which a frame, its place or the function matches. */
export function searched(run, from, to, measure, wanted) {
    let value = 0;
    for (const stack of run.memory.paths) {
        if (stack.host) continue;
        const texts = stack.stack.map((number) => run.frames[number].slice(0, 4).join(' '));
        if ([...texts, stack.function].some((text) => text.includes(wanted))) {
            value += ofStack(run.memory, stack, from, to)[measure][0];
        }
    }
    return value;
}

/** Sums of flat changes within the bins, column by column. */
export function flat(changes, width, from, to) {
    const sums = new Array(width - 1).fill(0);
    for (let at = 0; at < changes.length; at += width) {
        const [bin, ...values] = changes.slice(at, at + width);
        if (bin >= from && bin < to) values.forEach((value, column) => (sums[column] += value));
    }
    return sums;
}

/** Sums by label of what `bytesOf` each path is. */
function byLabel(held, labelOf, bytesOf) {
    const sums = {};
    for (const path of held.paths) {
        const label = labelOf(path);
        if (label !== null) sums[label] = (sums[label] ?? 0) + bytesOf(path);
    }
    return sums;
}

/** Live bytes by label at the highest total of a bin. */
export const areas = (held, bin, labelOf) =>
    byLabel(held, labelOf, ({ changes }) => {
        const [made, , freed, , ended] = flat(changes, 9, 0, bin);
        return made - freed - ended + flat(changes, 9, bin, bin + 1)[6];
    });

/** Bytes by label that are not freed at the end of the bins `from` up to `to`. */
export const leftBy = (held, from, to, labelOf) =>
    byLabel(held, labelOf, (path) => ofStack(held, path, from, to).never_freed[0]);
