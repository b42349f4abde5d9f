// A table is changed in the page and read back, a trigger is set, and a reload changes the table.

import assert from 'node:assert/strict';
import { EDGE, until } from '../processes.mjs';

export default async function ({ world, browser }) {
    // Without a controller, a trigger stays as it was set.
    await world.start({ edge: EDGE.replace(/^control:.*\n/m, '') });
    const page = await browser.open(world, {
        token: world.tokens.operator,
        hash: '#/edge/modules/route',
        // The browser reports the refused value at the end.
        expected: /status of 422/,
    });
    const entries = page.getByRole('region', { name: 'Entries of routes' });
    await entries.filter({ hasText: '10.0.0.0/8 1' }).waitFor();

    await page.getByRole('textbox', { name: 'Changes' }).fill('add 10.9.0.0/16 0\nadd 10.0.0.0/99 0');
    await page.getByRole('button', { name: 'Change the table' }).click();
    await page.getByText('Changes made: 1. Refused: 1.').waitFor();
    await page.getByText(/^Line 2: .*99/).waitFor();
    await entries.filter({ hasText: '10.9.0.0/16 0' }).waitFor();
    await page.getByText('3 entries').waitFor();
    const { body } = await world.request('instances/edge/tables/route/routes');
    assert.ok(body.entries.includes('10.9.0.0/16 0'), body.entries.join('\n'));
    assert.equal(body.entries.length, 3, body.entries.join('\n'));

    await page.getByRole('textbox', { name: /^New/ }).fill('8');
    await page.getByRole('button', { name: 'Set', exact: true }).click();
    await page.getByText('Set: 8, until the configuration or a controller changes it.').waitFor();
    const trigger = async () => {
        const { modules } = (await world.request('instances/edge/modules')).body;
        return modules.find((one) => one.name === 'route').trigger;
    };
    await until('the trigger 8', async () => (await trigger()) === 8);
    // The value in the page comes with the counters of the next second.
    await page.locator('dd', { hasText: /^8$/ }).first().waitFor();

    await page.getByRole('textbox', { name: /^New/ }).fill('much');
    await page.getByRole('button', { name: 'Set', exact: true }).click();
    await page.getByRole('alert').waitFor();
    assert.equal(await trigger(), 8, 'a value that is no number changes nothing');

    // Regression: after a reload, the page showed the table of before.
    await world.change('edge', '10.0.0.0/8 1', '10.0.0.0/9 1');
    await entries.filter({ hasText: '10.0.0.0/9 1' }).waitFor();
}
