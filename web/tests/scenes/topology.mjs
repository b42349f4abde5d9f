// A placement is proposed in the page, shown at its cores, and applied.

import assert from 'node:assert/strict';
import { EDGE, until } from '../processes.mjs';

/** The output of `forebay place --json`, as far as the page reads it. */
const placement = (core) => ({
    chains: [
        {
            chain: 'web',
            form: 'pipelined',
            functions: [{ module: 'a', name: 'a' }, { module: 'b', name: 'b' }],
            seats: [{ core }, { core }],
            rate_pps: 2_000,
            predicted_pps: 3_000_000,
            interval_95_pps: [2_000_000, 4_000_000],
            keeps_objective: true,
            binds: { function: 'a', drop: 0.1 },
        },
    ],
    rejected: [{ chain: 'voice', reason: 'no core is free' }],
});

export default async function ({ world, browser }) {
    const { modules, workers } = await start(world);
    assert.equal(modules.a.join(), '0');
    const core = workers[1];
    const page = await browser.open(world, { token: world.tokens.operator, hash: '#/edge/topology' });
    const at = (worker) => page.locator('.cores li', { hasText: `worker ${worker}, busy` });
    await at(0).filter({ hasText: 'fw, route, a, b' }).waitFor();
    await at(1).filter({ hasText: 'no modules' }).waitFor();

    // A single module.
    await page.getByLabel('Module:').selectOption('a');
    await page.getByLabel('Worker:').selectOption('1');
    await page.getByRole('button', { name: 'Propose' }).click();
    await at(0).filter({ hasText: 'leave: a' }).waitFor();
    await at(1).filter({ hasText: 'come: a' }).waitFor();
    await page.getByText('a: from worker 0 to 1').waitFor();
    await page.getByRole('button', { name: 'Apply' }).click();
    await page.getByText(/^Modules moved: 1\./).waitFor();
    await at(1).filter({ hasText: /%\s*a\s*$/ }).waitFor();
    const workersOf = async (module) => (await read(world)).modules[module].join();
    assert.equal(await workersOf('a'), '1');

    // A placement in a file. Module a is at its core already.
    const file = page.getByLabel('Placement:');
    const open = (text) =>
        file.setInputFiles({ name: 'place.json', mimeType: 'application/json', buffer: Buffer.from(text) });
    await open('{}');
    await page.getByRole('alert').filter({ hasText: 'has no placement' }).waitFor();
    await open(JSON.stringify(placement(9_999)));
    await page.getByRole('alert').filter({ hasText: 'core 9999, where this pipeline has no worker' }).waitFor();
    await open(JSON.stringify(placement(core)));
    await page.locator('tr', { hasText: /web\s*2\.00 kpps\s*3\.00 Mpps\s*2\.00 Mpps to 4\.00 Mpps/ }).waitFor();
    await page.getByText("Chain 'voice' does not fit: no core is free").waitFor();
    assert.equal(await page.getByText(/^a: from worker/).count(), 0, 'a does not move');
    await page.getByRole('button', { name: 'Apply' }).click();
    await page.getByText(/^Modules moved: 1\./).waitFor();
    await until('b on worker 1', async () => (await workersOf('b')) === '1');
    await browser.checkAccess(page, 'topology');

    // A viewer sees it, and cannot apply it.
    const viewer = await browser.open(world, { token: world.tokens.viewer, hash: '#/edge/topology' });
    await viewer.getByLabel('Module:').selectOption('b');
    await viewer.getByRole('button', { name: 'Propose' }).click();
    await viewer.getByText('b: from worker 1 to 0').waitFor();
    assert.ok(await viewer.getByRole('button', { name: 'Apply' }).isDisabled());
    await viewer.getByText(/needs a token with the role operator/).waitFor();
}

/** Starts a pipeline with a second worker that sleeps. */
async function start(world) {
    await world.start({ edge: `${EDGE}workers: [{}, { modules: [] }]\n` });
    return read(world);
}

/** Returns the workers of the modules by name, and the cores of the workers. */
async function read(world) {
    const { body } = await world.request('instances/edge/workers');
    const graph = (await world.request('instances/edge/graph')).body;
    return {
        modules: Object.fromEntries(graph.modules.map((module) => [module.name, module.workers])),
        workers: body.workers.map((worker) => worker.core),
    };
}
