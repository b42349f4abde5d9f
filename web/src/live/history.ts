/** The history of a pipeline, and figures that are derived from it. */

import { get, pathOf } from '../api/client';
import type { Column, History } from '../api/types';

/** The largest number of points in a chart: there are not more pixels. */
const MOST = 1_200;

/** Reads the history. `query` has the span and the subject. */
export async function readHistory(instance: string, query: string, signal: AbortSignal): Promise<History> {
    return get<History>(`${pathOf(instance, 'history')}?${query}`, signal);
}

/** Returns the rate of a column of counts. */
export function perSecond(counts: Column, intervals: Column): Column {
    return counts.map((count, at) => {
        const interval = intervals[at];
        return count === null || !interval ? null : count / interval;
    });
}

/** Returns the columns with at most `MOST` points. A point of figures is the largest of those that it stands for. */
export function reduced(at: number[], columns: Column[]): { at: number[]; columns: Column[] } {
    const step = Math.ceil(at.length / MOST);
    if (step <= 1) return { at, columns };
    const starts = Array.from({ length: Math.ceil(at.length / step) }, (_, index) => index * step);
    const larger = (a: number | null, b: number | null) => (b === null || (a ?? -1) > b ? a : b);
    const largest = (column: Column, start: number) => column.slice(start, start + step).reduce(larger, null);
    return {
        at: starts.map((start) => at[start] ?? 0),
        columns: columns.map((column) => starts.map((start) => largest(column, start))),
    };
}
