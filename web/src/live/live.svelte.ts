/** The state of all pipelines and alarms, kept up to date by one stream. */

import { events, type StreamEvent } from '../api/stream';
import { Problem, textOf } from '../api/client';
import { access } from '../api/access.svelte';
import type { Alarm, Change, Overview, PipelineEvent, Report, Tick } from '../api/types';
import { words } from '../text/units';
import { Instance } from './instance.svelte';

/** The times between two attempts to connect. */
const RETRY_MS = [300, 500, 1_000, 2_000];
/** How often the ages of figures are judged. */
const JUDGE_MS = 200;

export type Link = 'connecting' | 'open' | 'broken';

const keyOf = (alarm: Alarm) => `${alarm.instance ?? ''} ${alarm.alarm} ${alarm.subject}`;

class Live {
    instances = $state.raw<Instance[]>([]);
    alarms = $state.raw<Alarm[]>([]);
    version = $state('');
    link = $state<Link>('connecting');
    /** Why there is no stream. */
    trouble = $state('');
    /** Whether the server refuses to send anything without a token. */
    needsToken = $state(false);
    /** The last change of the alarms, for screen readers. */
    news = $state('');
    private last = '';
    private current: AbortController | undefined;

    find(name: string): Instance | undefined {
        return this.instances.find((instance) => instance.overview.name === name);
    }

    /** Follows the stream until the page ends. A hidden tab has no stream: a browser has few connections per server. */
    start(): void {
        setInterval(() => this.judge(), JUDGE_MS);
        document.addEventListener('visibilitychange', () => this.restart());
        this.restart();
    }

    /** Connects again, for example with another token. */
    restart(isOtherReader = false): void {
        if (isOtherReader) {
            this.last = '';
            // The other reader may not be allowed to see them.
            for (const instance of this.instances) instance.decisions = [];
        }
        this.current?.abort();
        this.current = undefined;
        if (document.hidden) return;
        this.current = new AbortController();
        void this.follow(this.current.signal);
    }

    private async follow(signal: AbortSignal): Promise<void> {
        this.link = 'connecting';
        for (let attempt = 0; !signal.aborted; attempt += 1) {
            let waitMs = RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)] ?? 0;
            try {
                for await (const event of events(this.last, signal)) {
                    attempt = 0;
                    this.link = 'open';
                    this.trouble = '';
                    this.needsToken = false;
                    this.take(event);
                    // The number is kept after the event is used, so that a broken event comes again.
                    this.last = event.id || this.last;
                }
                if (signal.aborted) return;
                this.trouble = 'The server has ended the stream.';
            } catch (error) {
                if (signal.aborted) return;
                this.trouble = textOf(error);
                if (error instanceof Problem) {
                    this.needsToken = error.status === 401 || error.status === 403;
                    if (error.status === 401) {
                        access.role = 'none';
                        access.trouble = access.token ? error.message : '';
                    }
                    waitMs = Math.max(waitMs, (error.retryAfterS ?? 0) * 1e3);
                }
            }
            this.link = 'broken';
            this.judge();
            await new Promise((wake) => setTimeout(wake, waitMs));
        }
    }

    private judge(): void {
        for (const instance of this.instances) instance.judge(this.link === 'open');
    }

    private take({ type, data }: StreamEvent): void {
        if (type === 'state') this.takeState(data as { instances: Overview[]; alarms: Alarm[]; forebay: string });
        if (type === 'alarm') this.takeAlarm(data as { alarm: Alarm; active: boolean });
        if (type === 'instance') {
            const { instance: name, overview } = data as { instance: string; overview: Overview | null };
            this.takeOverview(name, overview);
        }
        const about = data as { instance?: string };
        const instance = about.instance === undefined ? undefined : this.find(about.instance);
        if (!instance) return;
        if (type === 'report') instance.setReport((data as { report: Report }).report);
        if (type === 'tick') instance.addTick((data as { tick: Tick }).tick);
        if (type === 'decisions') instance.addDecisions((data as { decisions: Change[] }).decisions);
        if (type === 'event') instance.addEvents([(data as { event: PipelineEvent }).event]);
    }

    private takeState(state: { instances: Overview[]; alarms: Alarm[]; forebay: string }): void {
        this.version = state.forebay;
        this.alarms = state.alarms;
        this.instances = state.instances.map((overview) => {
            const known = this.find(overview.name);
            known?.restate(overview);
            return known ?? new Instance(overview);
        });
        this.judge();
    }

    /** Takes the new state of a pipeline. One that ended long ago has none any more. */
    private takeOverview(name: string, overview: Overview | null): void {
        const known = this.find(name);
        if (!overview) {
            this.instances = this.instances.filter((one) => one !== known);
            return;
        }
        if (known) known.restate(overview);
        else this.instances = [...this.instances, new Instance(overview)];
        this.judge();
    }

    private takeAlarm({ alarm, active }: { alarm: Alarm; active: boolean }): void {
        const others = this.alarms.filter((known) => keyOf(known) !== keyOf(alarm));
        const wasActive = others.length < this.alarms.length;
        this.alarms = active ? [...others, alarm] : others;
        // Only its cause has changed.
        if (active === wasActive) return;
        const about = [alarm.instance, alarm.subject].filter(Boolean).join(', ');
        this.news = `Alarm ${active ? 'began' : 'ended'}: ${words(alarm.alarm)}, ${about}.`;
    }
}

export const live = new Live();
