declare module 'd3-flame-graph' {
    export interface Frame<D> {
        data: D;
        highlight: boolean;
    }
    export interface FlameGraph<D> {
        width(pixels: number): this;
        cellHeight(pixels: number): this;
        minFrameSize(pixels: number): this;
        getChildren(children: (data: D) => D[]): this;
        transitionDuration(ms: number): this;
        inverted(is: boolean): this;
        resetHeightOnZoom(is: boolean): this;
        sort(compare: (a: Frame<D>, b: Frame<D>) => number): this;
        label(text: (frame: Frame<D>) => string): this;
        color(color: (frame: Frame<D>) => string): this;
        details(element: Element): this;
        setSearchMatch(matches: (frame: Frame<D>, term: string) => boolean): this;
        setSearchHandler(found: () => void): this;
        search(term: string): void;
        clear(): void;
        update(data?: D): this;
    }
    export default function flamegraph<D>(): FlameGraph<D>;
}
declare module 'd3-selection' {
    export function select(element: Element): { datum(data: unknown): { call(draw: unknown): void } };
}
