// What a reader without a token sees, and what each role may change. Hidden and disabled parts have their reason.

import assert from 'node:assert/strict';
import { configurationField, picture } from '../browser.mjs';
import { EDGE } from '../processes.mjs';

const NEEDS_VIEWER = /^This tab has no token\. This needs a token with the role viewer/;

export default async function ({ world, browser }) {
    await world.start({ edge: EDGE });
    await withoutToken(world, browser);
    await withWrongToken(world, browser);
    await withTokenInAddress(world, browser);
    for (const [role, rank] of [['viewer', 1], ['operator', 2], ['admin', 3]]) {
        await withRole(world, browser, role, rank);
    }
}

async function withoutToken(world, browser) {
    const page = await browser.open(world);
    await page.getByText('No token', { exact: true }).waitFor();
    await page.locator('tr[data-instance=edge]', { hasText: 'pps' }).waitFor();
    const go = (hash) => page.evaluate((to) => (location.hash = to), hash);

    await go('#/edge/flows');
    await page.locator('.chart canvas').waitFor();
    await page.locator('main p', { hasText: NEEDS_VIEWER }).waitFor();
    await go('#/edge/configuration');
    await page.locator('main p', { hasText: NEEDS_VIEWER }).waitFor();
    assert.equal(await page.locator('textarea').count(), 0);
    await picture(page, 'without-token');
    await go('#/edge/modules/route');
    // Parameters and tables.
    await page.locator('main p', { hasText: NEEDS_VIEWER }).nth(1).waitFor();
    assert.ok(await page.getByRole('button', { name: 'Set', exact: true }).isDisabled());
    await page.locator('main p', { hasText: /needs a token with the role operator/ }).waitFor();
    await go('#/edge/history');
    await page.locator('main p', { hasText: /needs a token with the role admin/ }).waitFor();
}

async function withWrongToken(world, browser) {
    const page = await browser.open(world, { token: `forebay_${'0'.repeat(64)}`, expected: /status of 401/ });
    await page.getByText('Token refused', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Remove the token' }).click();
    await page.locator('tr[data-instance=edge]', { hasText: 'pps' }).waitFor();
}

/** A token in the address of a page that is open already is used, and shown nowhere. */
async function withTokenInAddress(world, browser) {
    const page = await browser.open(world, { token: `forebay_${'0'.repeat(64)}`, expected: /status of 401/ });
    await page.getByText('Token refused', { exact: true }).waitFor();
    await page.getByRole('textbox', { name: 'Token' }).waitFor();
    await page.evaluate((token) => (location.hash = `#token=${token}`), world.tokens.viewer);
    await page.getByText('Role: viewer', { exact: true }).waitFor();
    const shown = await page.evaluate(() => document.documentElement.outerHTML + document.title + location.href);
    assert.ok(!shown.includes(world.tokens.viewer), 'the token is shown');
}

async function withRole(world, browser, role, rank) {
    const page = await browser.open(world, { token: world.tokens[role], hash: '#/edge/modules/route' });
    await page.getByText(`Role: ${role}`, { exact: true }).waitFor();
    const own = `This token has the role ${role}.`;
    const reason = (needed) => page.getByText(`${own} This needs a token with the role ${needed}`);
    const changes = page.getByRole('textbox', { name: 'Changes' });
    await changes.waitFor();
    assert.equal(await changes.isEnabled(), rank >= 2, `${role}: the form of the table`);
    assert.equal(await page.getByRole('textbox', { name: /^New/ }).isEnabled(), rank >= 2, `${role}: the values`);
    assert.equal(await reason('operator').count(), rank >= 2 ? 0 : 2, `${role}: the reasons`);

    await page.evaluate(() => (location.hash = '#/edge/configuration'));
    const text = await configurationField(page);
    assert.equal(await text.isEditable(), rank >= 3, `${role}: the configuration`);
    assert.equal(await reason('admin').count(), rank >= 3 ? 0 : 1, `${role}: the reason at the configuration`);
    await page.evaluate(() => (location.hash = '#/edge/history'));
    if (rank >= 3) await page.getByText('No change came over HTTP.').waitFor();
    else await reason('admin').waitFor();
}
