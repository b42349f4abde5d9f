// Serves dist/ with the policy of the real server, and passes /api on to a server at UPSTREAM (HOST:PORT).

import { createServer, request as ask } from 'node:http';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

const POLICY =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const FILES = {
    '/': ['index.html', 'text/html; charset=utf-8'],
    '/page.js': ['page.js', 'text/javascript; charset=utf-8'],
    '/page.css': ['page.css', 'text/css; charset=utf-8'],
    '/icon.svg': ['icon.svg', 'image/svg+xml'],
    '/licences.md': ['licences.md', 'text/markdown; charset=utf-8'],
};
const upstream = process.env.UPSTREAM ?? '127.0.0.1:9640';
const [host, port] = upstream.split(':');

const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url, 'http://localhost');
    if (pathname.startsWith('/api/')) {
        const headers = { ...request.headers, host: upstream };
        // The upstream server refuses the origin of this one.
        delete headers.origin;
        const passed = ask({ host, port, path: request.url, method: request.method, headers }, (answer) => {
            response.writeHead(answer.statusCode, answer.headers);
            answer.pipe(response);
            answer.on('error', () => response.destroy());
        });
        passed.on('error', () => {
            if (response.headersSent) response.destroy();
            else response.writeHead(502).end('no upstream');
        });
        response.on('close', () => passed.destroy());
        request.pipe(passed);
        return;
    }
    const [file, type] = FILES[pathname] ?? [];
    if (!file) {
        response.writeHead(404).end();
        return;
    }
    const body = await readFile(fileURLToPath(new URL(`../dist/${file}`, import.meta.url)));
    response.writeHead(200, { 'content-type': type, 'content-security-policy': POLICY, 'cache-control': 'no-store' });
    response.end(body);
});
server.listen(Number(process.env.PORT ?? 9650), '127.0.0.1', () => {
    console.log(`http://127.0.0.1:${server.address().port}/`);
});
