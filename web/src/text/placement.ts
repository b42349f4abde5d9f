/** Proposed placements: which modules run on which workers. */

/** A chain of a placement, as `forebay place --json` prints it. */
export interface PlacedChain {
    chain: string;
    form: 'pipelined' | 'fused';
    functions: { module: string; name: string }[];
    seats: { core: number }[];
    rate_pps: number | null;
    predicted_pps: number;
    interval_95_pps: [number, number];
    keeps_objective: boolean;
    binds: { function: string; drop: number };
}

export interface Placement {
    chains: PlacedChain[];
    rejected: { chain: string; reason: string }[];
}

/** The workers of each module. */
export type Workers = Map<string, number[]>;

/** Reads the output of `forebay place --json`. Throws an error for the reader. */
export function readPlacement(text: string): Placement {
    let value: Partial<Placement> | null;
    try {
        value = JSON.parse(text) as Partial<Placement> | null;
    } catch {
        throw new Error('The file is not JSON. `forebay place CHAINS --json > FILE` writes one.');
    }
    const isChain = (chain: Partial<PlacedChain> | null) =>
        Array.isArray(chain?.functions) && Array.isArray(chain.seats) && chain.seats.length > 0;
    if (!Array.isArray(value?.chains) || !value.chains.every(isChain)) {
        throw new Error('The file has no placement. `forebay place CHAINS --json > FILE` writes one.');
    }
    return { chains: value.chains, rejected: value.rejected ?? [] };
}

/** Returns the workers of the modules in a placement. `workerOf` has the worker of each core. Throws an error. */
export function workersOf(placement: Placement, modules: ReadonlySet<string>, workerOf: Map<number, number>): Workers {
    const wanted: Workers = new Map();
    for (const { chain, form, functions, seats } of placement.chains) {
        functions.forEach(({ module }, at) => {
            if (!modules.has(module)) {
                throw new Error(`Chain '${chain}': this pipeline has no module '${module}'.`);
            }
            // A chain that is split over cores has a core for each function; otherwise each core has a copy of it.
            const cores = form === 'pipelined' ? seats.slice(at, at + 1) : seats;
            const to = cores.map(({ core }) => {
                const worker = workerOf.get(core);
                if (worker === undefined) {
                    throw new Error(
                        `Chain '${chain}': module '${module}' would run on core ${core}, where this pipeline has no ` +
                            'worker. `forebay place --write FILE --spare` writes a pipeline with workers on all cores.',
                    );
                }
                return worker;
            });
            wanted.set(module, to);
        });
    }
    return wanted;
}
