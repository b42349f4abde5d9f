/**
 * Places the boxes of a graph in columns, with edges from left to right (Sugiyama, Tagawa and Toda 1981): columns by
 * the longest path, an order in each column with few crossings, then heights near those of the neighbours.
 */

/** The size of a box, in pixels. */
export const WIDTH = 148;
export const HEIGHT = 76;
/** The space between columns, and between boxes or lines of a column, in pixels. */
const GAP = { x: 44, box: 14, line: 8 };
const MARGIN = 4;
/** The passes that reorder the columns. More of them hardly reduce the crossings. */
const PASSES = 8;

export interface Places {
    width: number;
    height: number;
    boxes: Map<string, { x: number; y: number }>;
    /** The edges, as paths of SVG. */
    wires: { id: string; path: string }[];
}

/** A box, or a point in a column that an edge crosses. `y` is its middle. */
interface Cell {
    column: number;
    isBox: boolean;
    y: number;
    before: Cell[];
    after: Cell[];
}

const cell = (column: number, isBox: boolean): Cell => ({ column, isBox, y: 0, before: [], after: [] });
const mean = (values: number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Places the boxes. An edge that closes a cycle goes from right to left. */
export function place(ids: string[], edges: [string, string][]): Places {
    const known = new Set(ids);
    const all = edges.filter(([from, to]) => known.has(from) && known.has(to) && from !== to);
    const column = columnsOf(ids, all);
    const cells = new Map(ids.map((id) => [id, cell(column.get(id) ?? 0, true)]));
    const lines: { id: string; line: Cell[] }[] = [];
    const columns: Cell[][] = [];
    const add = (one: Cell) => (columns[one.column] ??= []).push(one);
    cells.forEach(add);
    for (const [from, to] of all) {
        const [first, last] = [cells.get(from), cells.get(to)];
        if (!first || !last) continue;
        const [left, right] = first.column < last.column ? [first, last] : [last, first];
        const length = right.column - left.column - 1;
        const between = Array.from({ length }, (_, at) => cell(left.column + 1 + at, false));
        between.forEach(add);
        const line = [left, ...between, right];
        line.slice(1).forEach((next, at) => {
            line[at]?.after.push(next);
            next.before.push(line[at] as Cell);
        });
        lines.push({ id: `${from}\n${to}`, line: left === first ? line : line.reverse() });
    }
    order(columns);
    const height = align(columns);
    const x = (one: Cell) => MARGIN + one.column * (WIDTH + GAP.x);
    return {
        width: Math.max(0, columns.length * (WIDTH + GAP.x) - GAP.x) + 2 * MARGIN,
        height,
        boxes: new Map([...cells].map(([id, one]) => [id, { x: x(one), y: one.y - HEIGHT / 2 }])),
        wires: lines.map(({ id, line }) => ({ id, path: pathOf(line, x) })),
    };
}

/** Returns the column of each box: the length of the longest path to it. Edges that close a cycle do not count. */
function columnsOf(ids: string[], edges: [string, string][]): Map<string, number> {
    const next = new Map(ids.map((id) => [id, edges.filter(([from]) => from === id).map(([, to]) => to)]));
    const open = new Set<string>();
    const sorted: string[] = [];
    const done = new Set<string>();
    const closing = new Set<string>();
    const visit = (id: string): void => {
        open.add(id);
        for (const to of next.get(id) ?? []) {
            if (open.has(to)) closing.add(`${id}\n${to}`);
            else if (!done.has(to)) visit(to);
        }
        open.delete(id);
        done.add(id);
        sorted.unshift(id);
    };
    ids.forEach((id) => done.has(id) || visit(id));
    const columns = new Map(ids.map((id) => [id, 0]));
    for (const id of sorted) {
        for (const to of next.get(id) ?? []) {
            if (closing.has(`${id}\n${to}`)) continue;
            columns.set(to, Math.max(columns.get(to) ?? 0, (columns.get(id) ?? 0) + 1));
        }
    }
    return columns;
}

/** Sorts each column by the mean position of the neighbours, in both directions, and keeps the best order. */
function order(columns: Cell[][]): void {
    const number = (cells: Cell[]) => cells.forEach((one, at) => (one.y = at));
    columns.forEach(number);
    let best = columns.map((cells) => [...cells]);
    let fewest = crossings(columns);
    for (let pass = 0; pass < PASSES && fewest > 0; pass += 1) {
        const isForward = pass % 2 === 0;
        for (const cells of isForward ? columns : [...columns].reverse()) {
            const wanted = new Map(
                cells.map((one) => {
                    const near = isForward ? one.before : one.after;
                    return [one, near.length > 0 ? mean(near.map((other) => other.y)) : one.y];
                }),
            );
            cells.sort((a, b) => (wanted.get(a) ?? 0) - (wanted.get(b) ?? 0));
            number(cells);
        }
        const now = crossings(columns);
        if (now < fewest) [best, fewest] = [columns.map((cells) => [...cells]), now];
    }
    columns.forEach((cells, at) => cells.splice(0, cells.length, ...(best[at] ?? [])));
    columns.forEach(number);
}

/** Counts the edges that cross between neighbouring columns. */
function crossings(columns: Cell[][]): number {
    let count = 0;
    for (const cells of columns) {
        const ends = cells.flatMap((one) => one.after.map((to) => to.y).sort((a, b) => a - b));
        // Each inversion is a crossing. Counted by insertion, because the list is nearly sorted.
        const sorted: number[] = [];
        for (const end of ends) {
            let at = sorted.length;
            while (at > 0 && (sorted[at - 1] ?? 0) > end) at -= 1;
            count += sorted.length - at;
            sorted.splice(at, 0, end);
        }
    }
    return count;
}

/** Sets the heights, and returns the height of the whole graph. */
function align(columns: Cell[][]): number {
    for (const cells of columns) spread(cells, () => 0);
    for (let pass = 0; pass < PASSES; pass += 1) {
        for (const cells of pass % 2 === 0 ? columns : [...columns].reverse()) {
            spread(cells, (one) => {
                const near = [...one.before, ...one.after];
                return near.length > 0 ? mean(near.map((other) => other.y)) : one.y;
            });
        }
    }
    const all = columns.flat();
    const half = (one: Cell) => (one.isBox ? HEIGHT / 2 : 0);
    const top = Math.min(...all.map((one) => one.y - half(one)), Infinity);
    if (all.length === 0) return 0;
    all.forEach((one) => (one.y += MARGIN - top));
    return Math.max(...all.map((one) => one.y + half(one))) + MARGIN;
}

/**
 * Moves the cells of a column as near to the wanted heights as their distances allow: the least sum of squares, by
 * isotonic regression (pool adjacent violators).
 */
function spread(cells: Cell[], wanted: (one: Cell) => number): void {
    const pools: { sum: number; count: number }[] = [];
    const value = (pool: { sum: number; count: number } | undefined) => (pool ? pool.sum / pool.count : -Infinity);
    const offsets: number[] = [];
    cells.forEach((one, at) => {
        const above = cells[at - 1];
        const size = (other: Cell) => (other.isBox ? HEIGHT : 0);
        const gap = above ? (size(above) + size(one)) / 2 + (above.isBox || one.isBox ? GAP.box : GAP.line) : 0;
        const offset = (offsets[at - 1] ?? 0) + gap;
        offsets.push(offset);
        let pool = { sum: wanted(one) - offset, count: 1 };
        while (value(pools.at(-1)) > value(pool)) {
            const last = pools.pop();
            pool = { sum: pool.sum + (last?.sum ?? 0), count: pool.count + (last?.count ?? 0) };
        }
        pools.push(pool);
    });
    const places = pools.flatMap((pool) => Array.from({ length: pool.count }, () => value(pool)));
    cells.forEach((one, at) => (one.y = (places[at] ?? 0) + (offsets[at] ?? 0)));
}

/** Returns the path of an edge: straight through columns, bent between them. */
function pathOf(line: Cell[], x: (one: Cell) => number): string {
    const [first, second] = line;
    if (!first || !second) return '';
    const isBack = second.column < first.column;
    const [out, into] = isBack ? [0, WIDTH] : [WIDTH, 0];
    const parts = [`M${x(first) + out} ${first.y.toFixed(1)}`];
    line.slice(1).forEach((next, at) => {
        const before = line[at] as Cell;
        const [from, to] = [x(before) + out, x(next) + into];
        const middle = (from + to) / 2;
        parts.push(`C${middle} ${before.y.toFixed(1)} ${middle} ${next.y.toFixed(1)} ${to} ${next.y.toFixed(1)}`);
        if (!next.isBox) parts.push(`H${x(next) + out}`);
    });
    return parts.join('');
}
