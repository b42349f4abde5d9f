// A pipeline and the server are killed and start again. The page shows it, and recovers without being loaded again.

import assert from 'node:assert/strict';
import { picture } from '../browser.mjs';
import { EDGE } from '../processes.mjs';

export default async function ({ world, browser, measure }) {
    const pipeline = await world.run('edge', EDGE);
    await world.start({});
    // The browser reports the requests for which there is no server.
    const page = await browser.open(world, { expected: /ERR_(CONNECTION_|INCOMPLETE_|EMPTY_|NETWORK_)/ });
    const row = page.locator('tr[data-instance=edge]');
    await row.filter({ hasText: 'pps' }).waitFor();
    await page.evaluate(() => (globalThis.isFirst = true));

    const stale = await watch(page, /stale|silent|killed/);
    const killed = Date.now();
    pipeline.child.kill('SIGKILL');
    measure('from the kill of a pipeline to its change in the page, ms', (await stale()) - killed);
    await row.filter({ hasText: 'killed' }).waitFor();
    await row.and(page.locator('.stale')).waitFor();
    assert.doesNotMatch(await row.innerText(), /pps/, 'old rates are not shown as present ones');
    await page.locator('.cards li', { hasText: 'instance killed' }).waitFor();
    await picture(page, 'pipeline-killed');

    await world.run('edge', EDGE);
    await row.filter({ hasText: /running.*pps/s }).waitFor();
    await page.getByText('No alarm is active.').waitFor();

    const broken = await watch(page, /stale/);
    const ended = Date.now();
    await world.server.end();
    measure('from the kill of the server to its change in the page, ms', (await broken()) - ended);
    await page.getByText('The figures are stale.').waitFor();
    await row.filter({ hasText: 'stale' }).waitFor();
    await picture(page, 'server-killed');
    await world.startServer();
    await row.filter({ hasText: /running.*pps/s }).waitFor();
    await page.getByText('The figures are stale.').waitFor({ state: 'detached' });
    assert.ok(await page.evaluate(() => globalThis.isFirst), 'the page was not loaded again');
}

/** Returns a function that waits until the pipeline's row matches, and returns when that was, by the page's clock. */
async function watch(page, text) {
    await page.evaluate((source) => {
        globalThis.shown = new Promise((resolve) => {
            const observer = new MutationObserver(() => {
                if (!new RegExp(source).test(document.querySelector('tr[data-instance=edge]')?.innerText)) return;
                observer.disconnect();
                resolve(performance.timeOrigin + performance.now());
            });
            observer.observe(document.body, { subtree: true, childList: true, characterData: true });
        });
    }, text.source);
    return async () => Math.round(await page.evaluate(() => globalThis.shown));
}
