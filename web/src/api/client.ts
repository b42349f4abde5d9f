/** Requests to the API. */

import type { Fault } from './types';
import { access } from './access.svelte';

/** An error of the API, or a server that does not respond. `message` has what is wrong and what to do. */
export class Problem extends Error {
    constructor(
        readonly status: number,
        detail: string,
        readonly faults: Fault[] = [],
        readonly retryAfterS: number | undefined = undefined,
    ) {
        super(detail);
    }
}

export interface Result<T> {
    body: T;
    etag: string | undefined;
}

/** Returns the header with the token, if there is a token. */
function identity(): Record<string, string> {
    return access.token ? { authorization: `Bearer ${access.token}` } : {};
}

/** Reads the problem of a response that is not a success. */
async function problemOf(response: Response): Promise<Problem> {
    const text = await response.text().catch(() => '');
    const retryAfterS = Number(response.headers.get('retry-after')) || undefined;
    try {
        const { detail, faults } = JSON.parse(text) as { detail?: string; faults?: Fault[] };
        if (detail) return new Problem(response.status, detail, faults, retryAfterS);
    } catch {
        // A proxy may respond with a text that is not JSON.
    }
    return new Problem(response.status, text.slice(0, 300) || `status ${response.status}`, [], retryAfterS);
}

/** Sends a request with the token. Throws a `Problem` if there is no response, or no success. */
export async function request(path: string, init: RequestInit): Promise<Response> {
    const headers = { ...identity(), ...(init.headers as Record<string, string>) };
    let response: Response;
    try {
        response = await fetch(`api/v1/${path}`, { cache: 'no-store', ...init, headers });
    } catch (error) {
        if (error instanceof DOMException && error.name === 'AbortError') throw error;
        throw new Problem(0, 'The server does not respond. Check that `forebay serve` runs.');
    }
    if (!response.ok) throw await problemOf(response);
    return response;
}

/** Sends a request and returns its body as JSON. Throws a `Problem`. */
export async function send<T>(path: string, init: RequestInit = {}): Promise<Result<T>> {
    const headers = { accept: 'application/json', ...(init.headers as Record<string, string>) };
    const response = await request(path, { ...init, headers });
    return { body: (await response.json()) as T, etag: response.headers.get('etag') ?? undefined };
}

/** Returns the body of a GET request. */
export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
    return (await send<T>(path, signal ? { signal } : {})).body;
}

/** Sends a change. Each has a key of its own, so that a proxy that repeats the request does not repeat the change. */
export async function change<T>(path: string, body: unknown, method = 'POST'): Promise<T> {
    const isText = typeof body === 'string';
    const headers = {
        'content-type': isText ? 'text/plain' : 'application/json',
        'idempotency-key': newKey(),
    };
    return (await send<T>(path, { method, headers, body: isText ? body : JSON.stringify(body) })).body;
}

/** Returns a new key. `crypto.randomUUID` needs HTTPS or localhost, and a proxy may serve the page without. */
export function newKey(): string {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Returns the path of a pipeline in the API. */
export function pathOf(instance: string, ...rest: string[]): string {
    return ['instances', instance, ...rest].map(encodeURIComponent).join('/');
}

/** Returns the text of an error for the reader. */
export function textOf(error: unknown): string {
    return error instanceof Error ? error.message : String(error);
}
