/** Finds the role of the token. */

import { access, type Role } from './access.svelte';
import { get, Problem } from './client';

/**
 * Asks for the role of the token. The API has no request for it, so this reads the audit log, which needs `admin`: the
 * problem of a lower role names that role.
 */
export async function findRole(): Promise<void> {
    const asked = access.token;
    if (!asked) return;
    let role: Role = 'none';
    let trouble = '';
    try {
        await get('audit?most=1');
        role = 'admin';
    } catch (error) {
        if (!(error instanceof Problem)) throw error;
        const named = /has the role (viewer|operator|admin)/.exec(error.message)?.[1];
        if (named) role = named as Role;
        // The store may be out of order, although the role is sufficient.
        else if (error.status === 503 && error.retryAfterS) role = 'admin';
        else trouble = error.message;
    }
    if (access.token !== asked) return;
    access.role = role;
    access.trouble = trouble;
}
