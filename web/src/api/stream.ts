/** The stream of events. */

import { access, type Role } from './access.svelte';
import { request } from './client';

export interface StreamEvent {
    id: string;
    type: string;
    data: unknown;
}

/**
 * Reads the stream of all pipelines, and the role of this client from its header. It uses fetch, because EventSource
 * cannot send the header Authorization.
 */
export async function* events(last: string, signal: AbortSignal): AsyncGenerator<StreamEvent> {
    const headers: Record<string, string> = { accept: 'text/event-stream' };
    if (last) headers['last-event-id'] = last;
    const response = await request('events?instance=*', { headers, signal });
    access.role = (response.headers.get('forebay-role') ?? 'none') as Role;
    access.trouble = '';
    if (!response.body) return;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        // The search for an end begins where the new text begins: a report has hundreds of kilobytes.
        let from = Math.max(0, rest.length - 1);
        rest += value;
        for (let end = rest.indexOf('\n\n', from); end >= 0; end = rest.indexOf('\n\n', from)) {
            const event = parse(rest.slice(0, end));
            rest = rest.slice(end + 2);
            from = 0;
            if (event) yield event;
        }
    }
}

function parse(block: string): StreamEvent | undefined {
    const event: StreamEvent = { id: '', type: 'message', data: undefined };
    const data: string[] = [];
    for (const line of block.split('\n')) {
        const at = line.indexOf(':');
        const name = line.slice(0, at);
        const text = line.slice(at + 1).replace(/^ /, '');
        if (name === 'id') event.id = text;
        else if (name === 'event') event.type = text;
        else if (name === 'data') data.push(text);
    }
    if (data.length === 0) return undefined;
    event.data = JSON.parse(data.join('\n'));
    return event;
}
