// A gateway for 64 next hops has 323 modules. Equal branches are drawn as one, and can be expanded.

import assert from 'node:assert/strict';
import { picture } from '../browser.mjs';

/** The time over which the main thread is measured. */
const MEASURED_MS = 4_000;

export default async function ({ world, browser, measure }) {
    await world.run('gw', 'usecase:gw', ['--set', 'n=64', '--set', 'rate=10kpps']);
    // Twice the usual number of reports: a page must be able to show them.
    await world.start({}, ['interval: 500ms']);
    await world.untilRunning('gw-64');
    const page = await browser.open(world, { hash: '#/gw-64/pipeline' });
    const boxes = page.locator('.box');
    const group = page.getByRole('button', { name: /× 64$/ });
    await group.first().waitFor();
    await boxes.filter({ hasText: 'pps' }).first().waitFor();
    const collapsed = await boxes.count();
    assert.ok(collapsed < 30, `${collapsed} boxes`);
    await page.getByText('323 modules').waitFor({ state: 'attached' });
    await page.waitForTimeout(500);
    measure('main thread, 323 modules collapsed at 2 Hz, share', await mainThread(page));

    await page.getByRole('button', { name: 'Expand all' }).click();
    await boxes.nth(322).waitFor();
    const shown = await boxes.locator('a').allInnerTexts();
    assert.equal(new Set(shown).size, 323, 'each module has its box');
    await page.waitForTimeout(500);
    measure('main thread, 323 modules expanded at 2 Hz, share', await mainThread(page));
    await picture(page, 'many-expanded');

    await page.getByRole('button', { name: 'Collapse all' }).click();
    await group.first().waitFor();
    assert.equal(await boxes.count(), collapsed);
    await group.first().click();
    await boxes.nth(collapsed + 62).waitFor();
    assert.equal(await boxes.count(), collapsed + 63, 'one group is expanded');
    await browser.checkAccess(page, 'many');
    await picture(page, 'many');
}

/** Returns the share of the time in which the main thread of the page had tasks. */
async function mainThread(page) {
    const session = await page.context().newCDPSession(page);
    await session.send('Performance.enable');
    const read = async () => {
        const { metrics } = await session.send('Performance.getMetrics');
        return Object.fromEntries(metrics.map(({ name, value }) => [name, value]));
    };
    const before = await read();
    await page.waitForTimeout(MEASURED_MS);
    const after = await read();
    await session.detach();
    return Number(((after.TaskDuration - before.TaskDuration) / (after.Timestamp - before.Timestamp)).toFixed(3));
}
