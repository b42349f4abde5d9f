// A stranger finds in the page alone which flow misses its objective, why, and what the controller did last.

import assert from 'node:assert/strict';
import { picture } from '../browser.mjs';
import { SLOW } from '../processes.mjs';

export default async function ({ world, browser }) {
    // In the one pipeline, no trigger keeps the objective. In the other one, the controller itself is the cause.
    await world.start({ slow: SLOW, waits: SLOW.replace('optimal', 'max') });
    const page = await browser.open(world, { token: world.tokens.viewer });
    await goToMissed(page, 'slow');
    await page.getByText(/^The controller optimal decides every 100 ms from the\s+rates/).waitFor();
    const costs = /more than its objective\.\s+\d+ % of this time is in the\s+module inspect\./;
    await page.locator('main p', { hasText: costs }).waitFor();
    await page.locator('main', { hasText: /no trigger keeps the objective of 100us: calls and waits/ }).waitFor();
    await picture(page, 'stranger-slow');

    await page.getByRole('link', { name: 'Overview' }).click();
    await goToMissed(page, 'waits');
    // What the controller did: in words below the chart, and in the table of its decisions.
    const last = /The last one for this flow: trigger of (\w+): 0 → 32\. Its reason: the controller always sets it so\./;
    const sentence = page.locator('main p', { hasText: last });
    await sentence.waitFor();
    const [, module] = last.exec(await sentence.innerText());
    const row = page.getByRole('region', { name: 'Decisions' }).locator('tr', { hasText: module });
    assert.match(await row.innerText(), /^\d\d:\d\d:\d\d\s+\w+\s+0 → 32\s+the controller always sets it so/);
    await picture(page, 'stranger-waits');

    // A page that is opened later shows the same.
    const later = await browser.open(world, { token: world.tokens.viewer, hash: '#/waits/flows/voice' });
    await later.locator('main p', { hasText: last }).waitFor();
}

/** Reads in the overview which flow misses its objective, since when, and what to do. Follows the link to the flow. */
async function goToMissed(page, name) {
    const alarm = page.locator('.cards li', { hasText: `objective missed in ${name}` });
    await alarm.waitFor();
    await page.locator(`tr[data-instance=${name}]`, { hasText: /1 kept,\s+1 missed/ }).waitFor();
    assert.match(await alarm.innerText(), /Since\s+\d\d:\d\d:\d\d[^]*Cause\s+voice:[^]*What to do\s+\S+/);
    await alarm.getByRole('link', { name: 'voice' }).click();
    await page.getByRole('heading', { name: 'Delay of the flow voice' }).waitFor();
    await page.locator('tr.chosen', { hasText: /voice\s*missed/ }).waitFor();
    await page.locator('main .problem', { hasText: /objective missed since \d\d:\d\d:\d\d/ }).waitFor();
}
