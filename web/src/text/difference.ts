/** The difference between two texts, by line. */

export interface Line {
    sign: ' ' | '+' | '-';
    text: string;
}

/** The largest number of pairs of lines that are compared. Longer texts are shown as replaced. */
const MOST = 4_000_000;

/** Returns the lines of both texts: those that stay, that are removed (`-`), and that are added (`+`). */
export function difference(before: string, after: string): Line[] {
    const [a, b] = [before.split('\n'), after.split('\n')];
    let start = 0;
    while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
    let end = 0;
    while (end < a.length - start && end < b.length - start && a.at(-1 - end) === b.at(-1 - end)) end += 1;
    const [x, y] = [a.slice(start, a.length - end), b.slice(start, b.length - end)];
    const kept = (lines: string[]): Line[] => lines.map((text) => ({ sign: ' ', text }));
    return [...kept(a.slice(0, start)), ...middle(x, y), ...kept(a.slice(a.length - end))];
}

/** Finds the longest common lines (dynamic programming). */
function middle(a: string[], b: string[]): Line[] {
    const removed = a.map((text): Line => ({ sign: '-', text }));
    const added = b.map((text): Line => ({ sign: '+', text }));
    if (a.length * b.length > MOST) return [...removed, ...added];
    const width = b.length + 1;
    const common = new Uint32Array((a.length + 1) * width);
    for (let i = a.length - 1; i >= 0; i -= 1) {
        for (let j = b.length - 1; j >= 0; j -= 1) {
            const [down, right] = [common[(i + 1) * width + j] ?? 0, common[i * width + j + 1] ?? 0];
            const both = (common[(i + 1) * width + j + 1] ?? 0) + 1;
            common[i * width + j] = a[i] === b[j] ? both : Math.max(down, right);
        }
    }
    const lines: Line[] = [];
    let [i, j] = [0, 0];
    while (i < a.length && j < b.length) {
        if (a[i] === b[j]) {
            lines.push({ sign: ' ', text: a[i] ?? '' });
            [i, j] = [i + 1, j + 1];
        } else if ((common[(i + 1) * width + j] ?? 0) >= (common[i * width + j + 1] ?? 0)) {
            lines.push(removed[i] as Line);
            i += 1;
        } else {
            lines.push(added[j] as Line);
            j += 1;
        }
    }
    return [...lines, ...removed.slice(i), ...added.slice(j)];
}

/** Returns only changed lines with two lines around them. A gap is an empty entry. */
export function shortened(lines: Line[]): (Line | undefined)[] {
    const near = (at: number) => lines.slice(Math.max(0, at - 2), at + 3).some((line) => line.sign !== ' ');
    const result: (Line | undefined)[] = [];
    lines.forEach((line, at) => {
        if (near(at)) result.push(line);
        else if (result.at(-1) !== undefined) result.push(undefined);
    });
    return result;
}
