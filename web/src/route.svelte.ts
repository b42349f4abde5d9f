/** The address of a view: `#/`, `#/PIPELINE/VIEW` or `#/PIPELINE/VIEW/SUBJECT`. */

import { access } from './api/access.svelte';
import { live } from './live/live.svelte';

export const VIEWS = ['flows', 'pipeline', 'modules', 'workers', 'topology', 'configuration', 'history'] as const;
export type ViewName = (typeof VIEWS)[number];

export interface Route {
    instance: string;
    view: ViewName | 'overview';
    subject: string;
}

function read(): Route {
    const [instance = '', view = '', subject = ''] = location.hash.replace(/^#\/?/, '').split('/').map(decode);
    const known = VIEWS.find((name) => name === view);
    return instance ? { instance, view: known ?? 'flows', subject } : { instance, view: 'overview', subject };
}

function decode(part: string): string {
    try {
        return decodeURIComponent(part);
    } catch {
        return part;
    }
}

/** Returns the address of a view. */
export function hrefOf(instance: string, view: ViewName, subject = ''): string {
    const parts = [instance, view, ...(subject ? [subject] : [])];
    return `#/${parts.map(encodeURIComponent).join('/')}`;
}

class Router {
    now = $state.raw<Route>(read());

    constructor() {
        addEventListener('hashchange', () => {
            if (access.takeFromAddress()) live.restart(true);
            this.now = read();
        });
    }
}

export const router = new Router();
