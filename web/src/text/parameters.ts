/** The text of one module in a configuration. */

/** The lines of a module. `first` counts from 1. */
export interface ModuleLines {
    first: number;
    text: string;
}

/** Returns the lines of the module in the section `modules`, if it is there. */
export function moduleLines(text: string, module: string): ModuleLines | undefined {
    const lines = text.split('\n');
    const begin = lines.findIndex((line) => /^modules\s*:/.test(line));
    if (begin < 0) return undefined;
    const length = lines.slice(begin + 1).findIndex((line) => /^[^\s#]/.test(line));
    const section = lines.slice(begin + 1, length < 0 ? undefined : begin + 1 + length);
    const indent = (line: string) => line.length - line.trimStart().length;
    const keys = [`${module}:`, `'${module}':`, `"${module}":`];
    const first = section.findIndex((line) => keys.some((key) => line.trimStart().startsWith(key)));
    const head = section[first];
    if (head === undefined) return undefined;
    const rest = section.slice(first + 1);
    const end = rest.findIndex((line) => line.trim() !== '' && indent(line) <= indent(head));
    const own = [head, ...rest.slice(0, end < 0 ? undefined : end)];
    const shown = own.map((line) => line.slice(indent(head))).join('\n').trimEnd();
    return { first: begin + 2 + first, text: shown };
}
