/** Groups of equal branches in the graph of a pipeline. */

import type { Graph } from '../api/types';

/** A box of the drawn graph: a port, a module, or a group of equal modules. */
export interface Node {
    id: string;
    /** The first module of a group, or the name. */
    name: string;
    function: string;
    isPort: boolean;
    members: string[];
}

/** The smallest number of equal modules that are drawn as one. */
const LEAST = 3;

/**
 * Returns for each module and port a number that equal ones share. Two modules are equal if they have the same
 * function, and if the modules before and after them are equal. (Colour refinement: classes are split until nothing
 * changes.)
 */
function equalClasses(graph: Graph): Map<string, number> {
    const before = new Map<string, string[]>();
    const after = new Map<string, string[]>();
    const add = (to: Map<string, string[]>, key: string, value: string) => to.set(key, [...(to.get(key) ?? []), value]);
    for (const { from, to } of graph.edges) {
        if (!to) continue;
        add(after, from, to);
        add(before, to, from);
    }
    const kinds = [
        ...graph.modules.map(({ name, function: kind }) => [name, `module ${kind}`] as const),
        // Ports are never grouped: each is another connection to the outside.
        ...graph.ports.map(({ name }) => [name, `port ${name}`] as const),
    ];
    let classOf = numbered(new Map(kinds));
    for (let known = 0; ; ) {
        const seen = new Set(classOf.values()).size;
        if (seen === known) return classOf;
        known = seen;
        const list = (names: string[] = []) => [...new Set(names.map((name) => classOf.get(name)))].sort().join();
        const next = kinds.map(
            ([name]) => [name, `${classOf.get(name)}|${list(before.get(name))}|${list(after.get(name))}`] as const,
        );
        classOf = numbered(new Map(next));
    }
}

function numbered(signatures: Map<string, string>): Map<string, number> {
    const numbers = new Map<string, number>();
    const number = (signature: string) => {
        if (!numbers.has(signature)) numbers.set(signature, numbers.size);
        return numbers.get(signature) ?? 0;
    };
    return new Map([...signatures].map(([name, signature]) => [name, number(signature)]));
}

/** Returns the nodes and edges to draw. `expanded` has the groups that are drawn as single modules. */
export function collapse(graph: Graph, expanded: ReadonlySet<string>): { nodes: Node[]; edges: [string, string][] } {
    const classOf = equalClasses(graph);
    const groups = new Map<number, string[]>();
    for (const { name } of graph.modules) {
        const group = classOf.get(name) ?? -1;
        groups.set(group, [...(groups.get(group) ?? []), name]);
    }
    const idOf = new Map<string, string>();
    const nodes: Node[] = [];
    for (const { name, kind } of graph.ports) {
        idOf.set(name, name);
        nodes.push({ id: name, name, function: kind, isPort: true, members: [name] });
    }
    for (const { name, function: kind } of graph.modules) {
        const members = groups.get(classOf.get(name) ?? -1) ?? [name];
        const first = members[0] ?? name;
        const isGroup = members.length >= LEAST && !expanded.has(first);
        const id = isGroup ? `${first} and equal ones` : name;
        idOf.set(name, id);
        if (!isGroup || first === name) {
            nodes.push({ id, name, function: kind, isPort: false, members: isGroup ? members : [name] });
        }
    }
    const drawn = new Map<string, [string, string]>();
    for (const { from, to } of graph.edges) {
        const pair: [string, string] = [idOf.get(from) ?? from, idOf.get(to ?? '') ?? ''];
        if (pair[1]) drawn.set(pair.join('\n'), pair);
    }
    return { nodes, edges: [...drawn.values()] };
}

/** Returns the first module of each group. */
export function groupsOf(graph: Graph): string[] {
    return collapse(graph, new Set()).nodes.filter((node) => node.members.length > 1).map((node) => node.name);
}
