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
    const isRejected = (one: Partial<Placement['rejected'][0]> | null) =>
        typeof one?.chain === 'string' && typeof one.reason === 'string';
    const chains = value?.chains;
    const rejected = value?.rejected ?? [];
    const isList = Array.isArray(chains) && Array.isArray(rejected);
    const isUnique = isList && new Set(chains.map((one) => one?.chain)).size === chains.length;
    if (!isUnique || !chains.every(isChain) || !rejected.every(isRejected)) {
        throw new Error('The file has no placement. `forebay place CHAINS --json > FILE` writes one.');
    }
    return { chains, rejected };
}

/** Returns a name of a file for an error. */
function short(name: string): string {
    return name.length > 100 ? `${name.slice(0, 100)}…` : name;
}

/** Returns whether a value has all that the page shows of a chain. */
function isChain(chain: Partial<PlacedChain> | null): boolean {
    const isNumber = (value: unknown) => typeof value === 'number' && Number.isFinite(value);
    return (
        typeof chain?.chain === 'string' &&
        ['pipelined', 'fused'].includes(chain.form ?? '') &&
        Array.isArray(chain.functions) &&
        chain.functions.every((one) => typeof one?.module === 'string') &&
        Array.isArray(chain.seats) &&
        chain.seats.every((seat) => isNumber(seat?.core)) &&
        chain.seats.length >= (chain.form === 'pipelined' ? chain.functions.length : 1) &&
        ((chain.rate_pps ?? null) === null || isNumber(chain.rate_pps)) &&
        isNumber(chain.predicted_pps) &&
        Array.isArray(chain.interval_95_pps) &&
        chain.interval_95_pps.every(isNumber) &&
        isNumber(chain.binds?.drop) &&
        typeof chain.binds?.function === 'string'
    );
}

/** Returns the workers of the modules in a placement. `workerOf` has the worker of each core. Throws an error. */
export function workersOf(placement: Placement, modules: ReadonlySet<string>, workerOf: Map<number, number>): Workers {
    const wanted: Workers = new Map();
    for (const { chain, form, functions, seats } of placement.chains) {
        functions.forEach(({ module }, at) => {
            if (!modules.has(module)) {
                throw new Error(`Chain '${short(chain)}': this pipeline has no module '${short(module)}'.`);
            }
            // A chain that is split over cores has a core for each function; otherwise each core has a copy of it.
            const cores = form === 'pipelined' ? seats.slice(at, at + 1) : seats;
            const to = cores.map(({ core }) => {
                const worker = workerOf.get(core);
                if (worker === undefined) {
                    throw new Error(
                        `Chain '${short(chain)}': module '${short(module)}' would run on core ${core}, where ` +
                            'this pipeline has no worker. `forebay place --write FILE --spare` writes a pipeline ' +
                            'with workers on all cores.',
                    );
                }
                return worker;
            });
            wanted.set(module, [...new Set(to)]);
        });
    }
    return wanted;
}
