// Pipelines, a server and tokens for the scenes, in a temporary folder of their own. So the scenes neither see nor
// disturb other pipelines of this host.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { chownSync, chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

/** Scenes wait at most this long for a state: other tests may run on the same cores. */
export const PATIENCE_MS = 60_000;

/** The user of the HTTP process, if root runs the scenes. Most systems give this number to the user without rights. */
const NO_RIGHTS = 65534;
const IS_ROOT = process.getuid() === 0;

/** A pipeline with a flow, with drops and with a table. */
export const EDGE = `ports:
  in:  { generator: { rate: 2kpps, destination: 10.0.0.0/16, destination_port: 53-56, sessions: 64 } }
  out: { sink: }
modules:
  fw: { acl: { rules: ['deny udp from any to any port 53', 'permit any'] } }
  route: { ip_lookup: { routes: ['0.0.0.0/0 0', '10.0.0.0/8 1'] } }
  a: { counter: }
  b: { counter: }
pipeline:
  - in -> fw -> route
  - route[0] -> a -> out
  - route[1] -> b -> out
flows:
  - { name: video, path: 'route[1] -> b', slo: 10s }
control: { batching: optimal }
`;

/** A pipeline in which the flow voice cannot keep its objective: a single packet takes longer. */
export const SLOW = `ports:
  in:  { generator: { rate: 400pps, destination: [10.0.0.0/16, 10.1.0.0/16] } }
  out: { sink: }
modules:
  route: { ip_lookup: { routes: ['10.0.0.0/16 0', '10.1.0.0/16 1'] } }
  inspect: { bypass: { cycles_per_packet: 1000000 } }
  pass: { counter: }
pipeline:
  - in -> route
  - route[0] -> inspect -> out
  - route[1] -> pass -> out
flows:
  - { name: bulk, path: 'route[1] -> pass', slo: 60s }
  - { name: voice, path: 'route[0] -> inspect', slo: 100us }
control: { batching: optimal }
`;

export const sleep = (ms) => new Promise((wake) => setTimeout(wake, ms));

/** Waits until `isThere` returns a value that counts as true, and returns it. */
export async function until(what, isThere) {
    const end = performance.now() + PATIENCE_MS;
    for (;;) {
        const value = await isThere();
        if (value) return value;
        assert.ok(performance.now() < end, `waited ${PATIENCE_MS / 1e3} s for ${what}`);
        await sleep(50);
    }
}

/** Returns a free port that the system gives to no other socket, so that it is still free when the server restarts. */
async function freePort() {
    // Linux gives the ports from 32768 on to connections (ip_local_port_range).
    for (;;) {
        const port = 20_000 + Math.floor(Math.random() * 12_768);
        const isFree = await new Promise((resolve) => {
            const server = createServer().once('error', () => resolve(false));
            server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
        });
        if (isFree) return port;
    }
}

/** A process that ends with this one, even if this one is killed. */
class Process {
    constructor(command, args, environment) {
        this.child = spawn('setpriv', ['--pdeathsig', 'KILL', command, ...args], {
            env: { ...process.env, ...environment },
            stdio: ['ignore', 'ignore', 'pipe'],
        });
        this.log = [];
        this.ended = new Promise((resolve) => this.child.once('close', resolve));
    }

    /** Waits for a line of the log. The other lines are kept for an error. */
    async line(part) {
        const lines = createInterface({ input: this.child.stderr });
        await new Promise((resolve, reject) => {
            lines.on('line', (line) => {
                this.log.push(line);
                if (line.includes(part)) resolve();
            });
            lines.once('close', () => reject(new Error(`no line with '${part}':\n${this.log.join('\n')}`)));
            this.child.once('error', reject);
        });
        return this;
    }

    async end(signal = 'SIGKILL') {
        this.child.kill(signal);
        await this.ended;
    }
}

/** What a scene works with. `end` ends all processes and removes the folder. */
export class World {
    processes = new Set();

    constructor(program) {
        this.program = program;
        this.folder = mkdtempSync(join(tmpdir(), 'forebay-page-'));
        chmodSync(this.folder, 0o755);
    }

    /**
     * Starts these pipelines and a server, and waits until the server shows them. `pipelines` has texts by name.
     * `more` has further settings of the server.
     */
    async start(pipelines, more = []) {
        this.address = `127.0.0.1:${await freePort()}`;
        this.url = `http://${this.address}/`;
        this.tokens = this.makeTokens(['viewer', 'operator', 'admin']);
        const settings = [
            `listen: ['${this.address}']`,
            `sockets: ['${this.folder}']`,
            `tokens: '${this.folder}/tokens.yaml'`,
            'store: memory',
            ...more,
        ];
        writeFileSync(join(this.folder, 'serve.yaml'), settings.join('\n'));
        await Promise.all(Object.entries(pipelines).map(([name, text]) => this.run(name, text)));
        await this.startServer();
        await Promise.all(Object.keys(pipelines).map((name) => this.untilRunning(name)));
    }

    async startServer() {
        const nowhere = join(this.folder, 'nothing');
        const user = IS_ROOT ? ['--user', String(NO_RIGHTS)] : [];
        // The folders in which pipelines listen by default hold those of other tests.
        this.server = await this.launch(
            this.program,
            ['serve', '--config', join(this.folder, 'serve.yaml'), ...user],
            'event=serving',
            { XDG_RUNTIME_DIR: nowhere, TMPDIR: nowhere },
        );
    }

    async launch(command, args, line, environment = {}) {
        const launched = new Process(command, args, environment);
        this.processes.add(launched);
        void launched.ended.then(() => this.processes.delete(launched));
        return launched.line(line);
    }

    makeTokens(roles) {
        let text = 'tokens:\n';
        const made = roles.map((role) => {
            const { stdout, stderr } = spawnSync(this.program, ['token', `${role}-1`, '--role', role], {
                encoding: 'utf8',
            });
            text += stdout;
            return [role, /^token: (\S+)$/m.exec(stderr)[1]];
        });
        const file = join(this.folder, 'tokens.yaml');
        writeFileSync(file, text, { mode: 0o600 });
        if (IS_ROOT) chownSync(file, NO_RIGHTS, NO_RIGHTS);
        return Object.fromEntries(made);
    }

    /** Runs a configuration under this name, or a use case with further arguments. */
    async run(name, what, more = []) {
        let source = what;
        if (!what.startsWith('usecase:')) {
            source = join(this.folder, `${name}.yaml`);
            writeFileSync(source, what);
        }
        const socket = join(this.folder, `${name}.sock`);
        // A worker uses a whole core. With a low priority, it does not delay the other processes on this core.
        const args = ['-n', '10', this.program, 'run', '--no-live', '--socket', socket, ...more, source];
        return this.launch('nice', args, 'event=listening');
    }

    untilRunning(name) {
        return until(`the pipeline ${name}`, async () => (await this.overview(name))?.status === 'running');
    }

    /** Returns the state of a pipeline, or undefined. */
    async overview(name) {
        const { body } = await this.request(`instances/${encodeURIComponent(name)}`);
        return body.name === name ? body : undefined;
    }

    /** Sends a request with a token, if there is one, and returns the status, the headers and the body. */
    async request(path, { token = this.tokens.admin, ...init } = {}) {
        const headers = { ...init.headers, ...(token ? { authorization: `Bearer ${token}` } : {}) };
        const response = await fetch(`${this.url}api/v1/${path}`, { ...init, headers });
        return { status: response.status, headers: response.headers, body: await response.json() };
    }

    /** Returns the configuration in force. */
    async configuration(name) {
        return (await this.request(`instances/${name}/config`)).body.text;
    }

    /** Changes a part of the configuration in force. */
    async change(name, from, to) {
        const path = `instances/${name}/config`;
        const { headers, body } = await this.request(path);
        assert.ok(body.text.includes(from), body.text);
        const changed = await this.request(path, {
            method: 'PUT',
            headers: { 'if-match': headers.get('etag'), 'content-type': 'application/yaml' },
            body: body.text.replace(from, to),
        });
        assert.equal(changed.status, 200, JSON.stringify(changed.body));
    }

    /** Kills all processes. It may be called when this process ends, so it waits for nothing. */
    kill() {
        for (const { child } of this.processes) child.kill('SIGKILL');
    }

    async end() {
        const ended = [...this.processes].map((one) => one.ended);
        this.kill();
        await Promise.all(ended);
        if (existsSync(this.folder)) rmSync(this.folder, { recursive: true });
    }
}
