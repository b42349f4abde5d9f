/** The codes of the API in sentences. Those of CHANGES are the sentences of forebay-protocol. */

import type { Change, ShortCause } from '../api/types';
import { share } from './units';

const CHANGES: Record<string, string> = {
    rule: 'the controller always sets it so',
    room: 'all objectives allow a larger trigger',
    optimum: 'the least load within all objectives',
    gradient: 'a step towards less load',
    arrives: 'even without a trigger, batches are nearly as large',
    slow: 'waiting for a batch would take longer than an objective allows',
    recovery: 'a flow takes longer than its objective',
    idle: 'no packets came',
    bare: 'objectives are kept better if no packet waits',
};

const MOVES: Record<string, string> = {
    apart: 'a flow cannot keep its objective if all modules are on one worker',
    together: 'all flows keep their objectives again with all modules on one worker',
};

/** Returns why a trigger changed. */
export function changeReason(change: Change): string {
    const reason = CHANGES[change.why] ?? change.why;
    return change.flow ? `${reason} (flow ${change.flow})` : reason;
}

/** Returns a change of a trigger. A trigger of 0 means that no packet waits. */
export function changeText(change: Change): string {
    return `trigger of ${change.module}: ${change.from} → ${change.to}`;
}

/** Returns why a flow does not get its rate. */
export function shortReason(cause: ShortCause): string {
    if ('time' in cause) {
        return `all rate objectives need ${share(cause.time.load)} of the time of worker ${cause.time.worker}`;
    }
    if ('together' in cause) {
        const { with: other, module } = cause.together;
        const where = `passes all modules of this flow from ${module} on`;
        return `the flow ${other} ${where}: give each flow a module of its own`;
    }
    return `its packets wait for packets of other flows before ${cause.held.module}`;
}

/** Returns why modules moved to another worker. */
export function moveReason(why: string): string {
    return MOVES[why] ?? why;
}
