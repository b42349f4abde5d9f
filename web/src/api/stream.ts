/** The stream of events. */

import { identity, Problem, problemOf } from './client';

export interface StreamEvent {
    id: string;
    type: string;
    data: unknown;
}

/** Reads the stream of all pipelines. It uses fetch, because EventSource cannot send the header Authorization. */
export async function* events(last: string, signal: AbortSignal): AsyncGenerator<StreamEvent> {
    const headers: Record<string, string> = { accept: 'text/event-stream', ...identity() };
    if (last) headers['last-event-id'] = last;
    let response: Response;
    try {
        response = await fetch('api/v1/events?instance=*', { headers, signal, cache: 'no-store' });
    } catch {
        throw new Problem(0, 'The server does not respond. Check that `forebay serve` runs.');
    }
    if (!response.ok) throw await problemOf(response);
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
