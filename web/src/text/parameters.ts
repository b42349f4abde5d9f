/** The text of one module in a configuration. */

/** Returns the lines of the module in the section `modules`, or an empty text. */
export function moduleText(text: string, module: string): string {
    const lines = text.split('\n');
    const begin = lines.findIndex((line) => /^modules\s*:/.test(line));
    if (begin < 0) return '';
    const length = lines.slice(begin + 1).findIndex((line) => /^[^\s#]/.test(line));
    const section = lines.slice(begin + 1, length < 0 ? undefined : begin + 1 + length);
    const indent = (line: string) => line.length - line.trimStart().length;
    const keys = [`${module}:`, `'${module}':`, `"${module}":`];
    const first = section.findIndex((line) => keys.some((key) => line.trimStart().startsWith(key)));
    const head = section[first];
    if (head === undefined) return '';
    const rest = section.slice(first + 1);
    const end = rest.findIndex((line) => line.trim() !== '' && indent(line) <= indent(head));
    const own = [head, ...rest.slice(0, end < 0 ? undefined : end)];
    return own.map((line) => line.slice(indent(head))).join('\n').trimEnd();
}
