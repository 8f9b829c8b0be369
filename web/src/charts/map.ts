import type { Segment, TensorSite } from '../document';
import { choice, details, fill, h } from '../dom';
import { count, duration, plural, share, size } from '../format';
import { FREE, type Row, segmentTable, toRow } from './segments';
import { area, colors, onTheme } from '../theme';

const ROW = 22;
const BAR = 16;
/** Width of the text beside the bars. */
const TEXT = 176;
const FIRST = 40;
const COLORED = 7;

/** Segments of an allocator, one bar each, with their blocks by call site. */
export class MemoryMap {
    readonly element: HTMLElement;
    private readonly canvas = h('canvas', {
        class: 'segments',
        tabindex: 0,
        role: 'application',
        'aria-label': 'memory map of segments and blocks',
        'aria-description': 'Arrow left and right move between blocks, up and down between segments.',
    });
    private readonly said = h('p', { class: 'said', role: 'status' });
    private readonly more = h('p', { class: 'more' });
    private readonly rows: Row[];
    private readonly rank = new Map<number, number>();
    private shown = FIRST;
    private row = 0;
    private block = 0;
    private fillsRows = false;

    constructor(
        segments: Segment[],
        private readonly sites: TensorSite[],
        private readonly lines: string[],
    ) {
        this.rows = segments.map(toRow).sort((a, b) => b.bytes - a.bytes);
        this.rankSites();
        const scale = choice(
            'width',
            [
                ['bytes', 'to scale'],
                ['rows', 'full rows'],
            ],
            'bytes',
            (value) => {
                this.fillsRows = value === 'rows';
                this.draw();
            },
        );
        const tools = h('div', { class: 'tools' }, scale, this.legend());
        const open = details('figures of the chart', segmentTable(this.rows));
        this.element = h('div', {}, tools, this.canvas, this.more, this.said, open);
        this.listen();
        onTheme(() => this.draw());
        new ResizeObserver(() => this.draw()).observe(this.canvas);
    }

    /** Sites have the colours of their areas in the timeline; without one, those that hold most have colours. */
    private rankSites(): void {
        const held = new Map<number, number>();
        for (const { site, bytes } of this.rows.flatMap((row) => row.blocks)) {
            if (site >= 0) held.set(site, (held.get(site) ?? 0) + bytes);
        }
        const sorted = [...held].sort((a, b) => b[1] - a[1]).map(([site]) => site);
        const lineOf = (site: number): number => {
            const id = this.sites[site]?.id;
            return this.lines.findIndex((label) => new RegExp(`^T${id}\\b`).test(label));
        };
        const found = sorted.filter((site) => lineOf(site) >= 0 && lineOf(site) < COLORED);
        if (found.length > 0) found.forEach((site) => this.rank.set(site, lineOf(site)));
        else sorted.slice(0, COLORED).forEach((site, rank) => this.rank.set(site, rank));
    }

    private color(site: number): string {
        if (site === FREE) return colors().free;
        return area(this.rank.get(site) ?? COLORED);
    }

    private legend(): HTMLElement {
        const key = (text: string, site: number): HTMLElement => {
            const swatch = h('span', { class: 'swatch', 'aria-hidden': 'true' });
            onTheme(() => (swatch.style.background = this.color(site)));
            return h('span', { class: 'key' }, swatch, text);
        };
        const keys = [...this.rank.keys()].map((site) => key(this.siteText(site), site));
        const free = key('free, cached', FREE);
        return h('p', { class: 'keys' }, ...keys, key('other or unknown', -1), free);
    }

    private siteText(site: number): string {
        if (site === FREE) return 'free, cached';
        const found = this.sites[site];
        return found ? `T${found.id} ${found.label}` : 'unknown, or from before attach';
    }

    private listen(): void {
        const { canvas } = this;
        canvas.addEventListener('mousemove', (event) => {
            const row = Math.floor(event.offsetY / ROW);
            const block = this.blockAt(row, event.offsetX);
            if (block >= 0) this.select(row, block);
        });
        canvas.addEventListener('focus', () => this.draw());
        canvas.addEventListener('blur', () => this.draw());
        const moves: Record<string, () => void> = {
            ArrowRight: () => this.select(this.row, this.block + 1),
            ArrowLeft: () => this.select(this.row, this.block - 1),
            ArrowDown: () => this.select(this.row + 1, 0),
            ArrowUp: () => this.select(this.row - 1, 0),
        };
        canvas.addEventListener('keydown', (event) => {
            const move = moves[event.key];
            if (!move || event.ctrlKey || event.altKey || event.metaKey) return;
            event.preventDefault();
            move();
        });
    }

    private scale(row: Row): number {
        const room = Math.max(1, this.canvas.clientWidth - TEXT);
        return room / (this.fillsRows ? row.bytes : this.rows[0]!.bytes);
    }

    private blockAt(row: number, x: number): number {
        const one = this.rows[row];
        if (!one || row >= this.shown) return -1;
        const offset = (x - TEXT) / this.scale(one);
        return one.blocks.findIndex((block) => offset >= block.offset && offset < block.offset + block.bytes);
    }

    private select(row: number, block: number): void {
        const rows = Math.min(this.shown, this.rows.length);
        this.row = Math.min(rows - 1, Math.max(0, row));
        this.block = Math.min(this.rows[this.row]!.blocks.length - 1, Math.max(0, block));
        this.draw();
        this.say();
    }

    private say(): void {
        const row = this.rows[this.row];
        const block = row?.blocks[this.block];
        if (!row || !block) return;
        const age = block.age >= 0 ? `, ${duration(block.age)} old` : '';
        const at = `at offset ${size(block.offset)} of segment ${row.address}`;
        const text = ` ${size(block.bytes)}${age}, ${at}`;
        fill(this.said, h('strong', {}, this.siteText(block.site)), text);
    }

    private draw(): void {
        const { canvas } = this;
        const shown = Math.min(this.shown, this.rows.length);
        const width = canvas.clientWidth;
        const ratio = devicePixelRatio;
        canvas.style.height = `${shown * ROW}px`;
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(shown * ROW * ratio);
        const ctx = canvas.getContext('2d')!;
        ctx.scale(ratio, ratio);
        ctx.textBaseline = 'middle';
        ctx.font = '12px ui-monospace, monospace';
        this.rows.slice(0, shown).forEach((row, index) => this.drawRow(ctx, row, index));
        if (document.activeElement === canvas) this.drawSelected(ctx);
        this.drawMore(shown);
    }

    private drawRow(ctx: CanvasRenderingContext2D, row: Row, index: number): void {
        const top = index * ROW + (ROW - BAR) / 2;
        const scale = this.scale(row);
        ctx.fillStyle = colors().muted;
        ctx.textAlign = 'right';
        ctx.fillText(size(row.bytes), 104, index * ROW + ROW / 2);
        ctx.fillStyle = colors().ink;
        ctx.fillText(share(row.used, row.bytes) || '0.0 %', TEXT - 10, index * ROW + ROW / 2);
        ctx.textAlign = 'left';
        ctx.fillStyle = colors().free;
        ctx.fillRect(TEXT, top, Math.max(1, row.bytes * scale), BAR);
        for (const block of row.blocks) {
            if (block.site === FREE) continue;
            const wide = block.bytes * scale;
            ctx.fillStyle = this.color(block.site);
            ctx.fillRect(TEXT + block.offset * scale, top, Math.max(0.6, wide - (wide > 3 ? 1 : 0)), BAR);
        }
        ctx.strokeStyle = colors().freeLine;
        ctx.lineWidth = 1;
        ctx.strokeRect(TEXT + 0.5, top - 0.5, Math.max(1, row.bytes * scale - 1), BAR + 1);
    }

    private drawSelected(ctx: CanvasRenderingContext2D): void {
        const row = this.rows[this.row]!;
        const block = row.blocks[this.block];
        if (!block) return;
        const scale = this.scale(row);
        ctx.strokeStyle = colors().ink;
        ctx.lineWidth = 2;
        const left = TEXT + block.offset * scale;
        ctx.strokeRect(left, this.row * ROW + 2, Math.max(2, block.bytes * scale - 1), ROW - 4);
    }

    private drawMore(shown: number): void {
        const rest = this.rows.length - shown;
        this.more.hidden = rest === 0;
        const all = (): void => {
            this.shown = this.rows.length;
            this.draw();
        };
        const button = h('button', { type: 'button', onclick: all }, `Show all ${count(this.rows.length)}`);
        fill(this.more, `The largest ${plural(shown, 'segment')}. `, button);
    }
}
