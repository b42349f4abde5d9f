/** A pipeline as the stream shows it: its counters in the last second, and the delays of its flows. */

import type { Change, Overview, PipelineEvent, Report, Tick } from '../api/types';

/** The seconds of delays that are kept. */
const KEPT = 600;
/** The numbers of decisions and events that are kept. */
const MOST = 200;
/** If a pipeline sends nothing for this number of intervals, its figures are shown as stale. */
const STALE = 1.8;

/** Figures of the last second. Those of modules, flows and ports have the indices of the report. */
export interface Rates {
    in: number;
    out: number;
    dropped: number;
    waiting: number;
    reasons: Record<string, number>;
    busy: number[];
    pps: Float64Array;
    batch: Float64Array;
    drops: Float64Array;
    ticks: Float64Array;
    flowPps: Float64Array;
    flowP50: Float64Array;
    flowDelay: Float64Array;
    violations: Float64Array;
    received: Float64Array;
    sent: Float64Array;
    portDrops: Float64Array;
}

export interface Setting {
    trigger: number;
    hold_us: number | null;
    weight: number | null;
}

/** The delays of the flows, by second. A row is a flow. */
export interface Series {
    at: number[];
    delay: (number | null)[][];
    pps: (number | null)[][];
}

export class Instance {
    overview = $state.raw<Overview>() as Overview;
    report = $state.raw<Report | undefined>();
    rates = $state.raw<Rates | undefined>();
    settings = $state.raw<Setting[]>([]);
    drops = $state.raw<Record<string, number>>({});
    series = $state.raw<Series>({ at: [], delay: [], pps: [] });
    decisions = $state.raw<Change[]>([]);
    events = $state.raw<PipelineEvent[]>([]);
    /** Whether the figures are old: none came lately, the pipeline does not run, or the stream is broken. */
    isStale = $state(false);
    /** Increases with each report, so that views read the graph again. */
    generation = $state(0);
    /** When the last figures came, and the time between two of them, which is a setting of the server. */
    private heardMs: number | undefined;
    private intervalMs = 1_000;

    constructor(overview: Overview) {
        this.overview = overview;
    }

    /** Sets a new state. A pipeline that started again has no decisions yet. */
    restate(overview: Overview): void {
        if (overview.pid !== this.overview.pid || overview.started !== this.overview.started) this.decisions = [];
        if (overview.status !== this.overview.status) this.heardMs = performance.now();
        this.overview = overview;
    }

    setReport(report: Report): void {
        const isSame = report.flows.map((flow) => flow.name).join() === this.report?.flows.map((f) => f.name).join();
        if (!isSame) {
            this.series = { at: [], delay: report.flows.map(() => []), pps: report.flows.map(() => []) };
        }
        this.report = report;
        this.settings = report.modules.map(({ trigger, hold_us, weight }) => ({ trigger, hold_us, weight }));
        this.drops = { ...report.packets.dropped };
        this.rates = undefined;
        this.generation += 1;
    }

    addTick(tick: Tick): void {
        const report = this.report;
        if (!report || tick.interval_s <= 0) return;
        this.heardMs = performance.now();
        this.intervalMs = Math.max(1_000, tick.interval_s * 1e3);
        this.isStale = false;
        const per = 1 / tick.interval_s;
        const dropped = Object.entries(tick.dropped ?? {});
        const lost = dropped.reduce((sum, [, count]) => sum + count, tick.lost ?? 0);
        const spread = (length: number, index: number[], values: (number | null)[], factor = per, empty = 0) => {
            const all = new Float64Array(length).fill(empty);
            index.forEach((to, at) => (all[to] = values[at] === null ? empty : (values[at] ?? 0) * factor));
            return all;
        };
        const { modules, flows, ports } = tick;
        // Only some calls are timed. A module without a timed call in this second keeps its last figure.
        const ticks = spread(report.modules.length, modules.index, modules.ticks, 1, NaN);
        const lastTicks = this.rates?.ticks ?? report.modules.map((module) => module.ticks_per_packet ?? NaN);
        ticks.forEach((now, index) => Number.isNaN(now) && (ticks[index] = lastTicks[index] ?? NaN));
        const batches = modules.packets.map((packets, at) => packets / Math.max(1, modules.batches[at] ?? 0));
        const [m, f, p] = [report.modules.length, report.flows.length, report.ports.length];
        this.rates = {
            in: tick.in * per,
            out: tick.out * per,
            dropped: lost * per,
            waiting: tick.waiting.reduce((sum, count) => sum + count, 0),
            reasons: Object.fromEntries(dropped.map(([key, count]) => [key, count * per])),
            busy: tick.busy.map((busy) => busy / 1e3),
            pps: spread(m, modules.index, modules.packets),
            batch: spread(m, modules.index, batches, 1),
            drops: spread(m, modules.index, modules.dropped),
            ticks,
            flowPps: spread(f, flows.index, flows.packets),
            flowP50: spread(f, flows.index, flows.p50_us, 1, NaN),
            flowDelay: spread(f, flows.index, flows.chosen_us, 1, NaN),
            violations: spread(f, flows.index, flows.violations),
            received: spread(p, ports.index, ports.received),
            sent: spread(p, ports.index, ports.sent),
            portDrops: spread(p, ports.index, ports.dropped),
        };
        this.addTotals(tick);
        this.addSeries(this.rates);
    }

    addDecisions(changes: Change[]): void {
        const isNew = (change: Change) =>
            !this.decisions.some((known) => known.at_s === change.at_s && known.module === change.module);
        const all = [...this.decisions, ...changes.filter(isNew)];
        this.decisions = all.sort((a, b) => a.at_s - b.at_s).slice(-MOST);
    }

    addEvents(events: PipelineEvent[]): void {
        const known = new Map(this.events.map((event) => [`${event.id} ${event.time}`, event]));
        for (const event of events) known.set(`${event.id} ${event.time}`, event);
        this.events = [...known.values()].sort((a, b) => (a.time < b.time ? -1 : 1)).slice(-MOST);
    }

    /** Judges whether the figures are stale. */
    judge(isConnected: boolean): void {
        // Before the first figures, only the server knows whether the pipeline is silent.
        const silentMs = performance.now() - (this.heardMs ?? Infinity);
        const isStale =
            !isConnected || this.overview.status !== 'running' || silentMs > STALE * this.intervalMs;
        if (isStale !== this.isStale) this.isStale = isStale;
    }

    /** Returns the time of a decision, in seconds since 1970. */
    timeOf(change: { at_s: number }): number {
        return Date.parse(this.overview.started) / 1e3 + change.at_s;
    }

    private addTotals(tick: Tick): void {
        if (tick.dropped && Object.keys(tick.dropped).length > 0) {
            const drops = { ...this.drops };
            for (const [key, count] of Object.entries(tick.dropped)) drops[key] = (drops[key] ?? 0) + count;
            this.drops = drops;
        }
        if (tick.settings?.length) {
            const settings = [...this.settings];
            for (const { index, ...setting } of tick.settings) settings[index] = setting;
            this.settings = settings;
        }
    }

    private addSeries(rates: Rates): void {
        const { at, delay, pps } = this.series;
        const now = Date.now() / 1e3;
        const first = at.findIndex((time) => time > now - KEPT);
        const from = first < 0 ? at.length : first;
        const known = (value = NaN) => (Number.isNaN(value) ? null : value);
        const add = (rows: (number | null)[][], values: Float64Array) =>
            rows.map((row, flow) => [...row.slice(from), known(values[flow])]);
        this.series = {
            at: [...at.slice(from), now],
            delay: add(delay, rates.flowDelay),
            pps: add(pps, rates.flowPps),
        };
    }
}
