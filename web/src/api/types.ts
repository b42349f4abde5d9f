/** The types of the API that the page uses. Their meaning is in schema/openapi.json and docs/server.md. */

export interface Overview {
    name: string;
    status: 'running' | 'silent' | 'ended' | 'killed';
    pipeline: string;
    pid: number;
    forebay: string;
    started: string;
    config_version: string | null;
    workers: number;
    in_pps: number | null;
    out_pps: number | null;
    dropped_pps: number | null;
    busy: number[];
    objectives: number;
    objectives_missed: number;
    alarms: number;
}

export interface Alarm {
    alarm: string;
    severity: 'critical' | 'warning';
    instance?: string | null;
    subject: string;
    since_ms: number;
    cause: string;
    advice: string;
}

export interface PipelineEvent {
    id: number;
    time: string;
    level: 'error' | 'warn' | 'info';
    event: string;
    msg: string;
}

export interface Change {
    at_s: number;
    module: string;
    from: number;
    to: number;
    why: string;
    flow?: string | null;
}

export type ShortCause =
    | { time: { worker: number; load: number } }
    | { together: { with: string; module: string } }
    | { held: { module: string } };

export interface Control {
    controller: string;
    period_ms: number;
    periods: number;
    violated: number;
    changes: Change[];
    short?: { flow: string; rate_pps: number; min_rate_pps: number; cause: ShortCause }[];
    moves?: { at_s: number; modules: string[]; from: number; to: number; why: string; flow?: string }[];
    unmoved?: string;
    trouble?: string;
}

export interface ModuleReport {
    name: string;
    function: string;
    workers: number[];
    packets: number;
    batches: number;
    batch_mean: number | null;
    batch_sizes: number[];
    trigger: number;
    hold_us: number | null;
    weight: number | null;
    ticks_per_packet: number | null;
    ticks_per_batch: number | null;
    metered?: { instructions: number; cycles: number } | null;
    share: number | null;
    folded?: string | null;
    dropped: number;
    counters: Record<string, Record<string, number>>;
}

export interface FlowReport {
    name: string;
    packets: number;
    delay_us: { p50: number | null; p99: number | null };
    slo_us: number | null;
    percentile: number | string | null;
    at_percentile_us: number | null;
    violations: number | null;
    kept: boolean | null;
    min_rate_pps?: number | null;
    min_rate_bps?: number | null;
    rate_kept?: boolean | null;
    missed_by_machine?: boolean;
}

export interface WorkerReport {
    id: number;
    core: number | null;
    busy: number;
    timing_share: number;
    machine_stalls: { turns: number; share: number };
    machine_time: { steal: number | null; wait: number | null };
    handed: number;
    taken: number;
    stalls: number;
}

export interface PortReport {
    name: string;
    kind: string;
    received: number;
    sent: number;
    dropped: number;
    refused: number;
    errors: number;
}

export interface Packets {
    in: number;
    out: number;
    lost: number;
    dropped: Record<string, number>;
    queued: number;
    held: number;
    in_flight: number;
}

export interface Report {
    pipeline: string;
    cpu: { tsc_ghz: number };
    duration_s: number;
    packets: Packets;
    modules: ModuleReport[];
    flows: FlowReport[];
    workers: WorkerReport[];
    ports: PortReport[];
    control?: Control;
}

export interface Tick {
    interval_s: number;
    in: number;
    out: number;
    lost?: number;
    waiting: [number, number, number];
    dropped?: Record<string, number>;
    modules: {
        index: number[];
        packets: number[];
        batches: number[];
        dropped: number[];
        ticks: (number | null)[];
    };
    flows: {
        index: number[];
        packets: number[];
        violations: number[];
        p50_us: (number | null)[];
        chosen_us: (number | null)[];
    };
    ports: { index: number[]; received: number[]; sent: number[]; dropped: number[]; failed: number[] };
    busy: number[];
    settings?: { index: number; trigger: number; hold_us: number | null; weight: number | null }[];
}

export interface Graph {
    modules: { name: string; function: string; workers: number[]; folded?: string | null; gates: string[] }[];
    ports: { name: string; kind: string; workers: number[] }[];
    edges: { from: string; gate?: string | null; to?: string | null }[];
    flows: { name: string; path: string[] }[];
    workers: { id: number; core?: number | null }[];
}

export interface TableSummary {
    module: string;
    table: string;
    entries: number;
    syntax: string;
}

export interface TableChanged {
    made: number;
    entries: number;
    refused: [number, string][];
    refusals: number;
    warnings: string[];
}

export interface Fault {
    place: string;
    line?: number | null;
    column?: number | null;
    message: string;
    hint?: string | null;
}

export interface Configuration {
    text: string;
    file: string;
    version: string;
    changes: number;
}

export interface ConfigurationResult {
    dry_run: boolean;
    version: string;
    checked: { faults: Fault[]; warnings: [string, string][] };
    reloaded?: { changed: string[]; added: string[]; removed: string[]; dropped: number; took_ms: number } | null;
}

export type Column = (number | null)[];

export interface History {
    at: number[];
    interval_s: Column;
    next?: number | null;
    figures: {
        total?: { entered: Column; out: Column; dropped: Column; busy: Column[] };
        module?: { packets: Column; dropped: Column; batches: Column; ticks_per_packet: Column };
        flow?: { packets: Column; violations: Column; p50_us: Column; p99_us: Column; chosen_us: Column };
    };
}

export interface AuditRecord {
    id: number;
    at_ms: number;
    who: string;
    role: string;
    method: string;
    path: string;
    request?: string | null;
    ended?: { status: number; result?: string | null } | null;
}

export interface HostTopology {
    processors: {
        number: number;
        package: number;
        node: number | null;
        cache: number | null;
        usable: 'yes' | 'not_allowed' | 'off';
    }[];
    caches: { level: number; bytes: number | null }[];
    interfaces: { name: string; node: number | null }[];
}

/** The JSON Schema of a function's parameters, as far as the page reads it. */
export interface ParameterSchema {
    description?: string;
    properties?: Record<string, { description?: string; default?: unknown }>;
    required?: string[];
    anyOf?: ParameterSchema[];
}
