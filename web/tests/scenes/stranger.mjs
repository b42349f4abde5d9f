// A stranger finds in the page alone which flow misses its objective, why, and what the controller did last.

import assert from 'node:assert/strict';
import { SLOW } from '../processes.mjs';

export default async function ({ world, browser }) {
    await world.start({ slow: SLOW });
    const page = await browser.open(world, { token: world.tokens.viewer });
    // The overview: which flow, since when, and what to do.
    const alarm = page.locator('.cards li', { hasText: 'objective missed' });
    await alarm.waitFor();
    await page.locator('tr[data-instance=slow]', { hasText: /1 kept,\s+1 missed/ }).waitFor();
    assert.match(await alarm.innerText(), /Since\s+\d\d:\d\d:\d\d[^]*Cause\s+voice:[^]*What to do\s+\S+/);
    const reach = page.locator('.cards li', { hasText: 'objective out of reach' });
    await reach.filter({ hasText: /voice:.* the objective is 100 [uµ]s/s }).waitFor();
    // A click on the flow leads to the reason.
    await alarm.getByRole('link', { name: 'voice' }).click();
    await page.getByRole('heading', { name: 'Delay of the flow voice' }).waitFor();
    await page.locator('tr.chosen', { hasText: /voice\s*missed/ }).waitFor();
    await page.getByText(/^No trigger keeps the objective of 100 µs: /).waitFor();
    // What the controller did: in words below the chart, and in the table of its decisions.
    await page.getByText(/The last one: trigger of \w+: \d+ → \d+, because /).waitFor();
    await page.getByText(/^The controller optimal decides every 100 ms\./).waitFor();
    const newest = page.getByRole('region', { name: 'Decisions' }).locator('tbody tr').first();
    await newest.waitFor();
    assert.match(await newest.innerText(), /\d\d:\d\d:\d\d\s+\w+\s+\d+ → \d+\s+\S+/);
}
