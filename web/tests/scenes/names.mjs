// Texts of others are shown as text, whatever markup they have: the name of a pipeline, and what errors repeat.

import assert from 'node:assert/strict';
import { configurationField } from '../browser.mjs';
import { EDGE } from '../processes.mjs';

const NAME = '<img src=x onerror=alert(1)>';
/** Errors repeat one word: up to a space, or up to a slash. */
const WORD = '<b>x';

export default async function ({ world, browser }) {
    await world.start({ [NAME]: EDGE });
    const page = await browser.open(world, { token: world.tokens.admin, expected: /status of 422/ });
    page.on('dialog', (dialog) => {
        browser.faults.push(`a dialog opened: ${dialog.message()}`);
        void dialog.dismiss();
    });
    const link = page.locator('tr[data-instance] a');
    await link.waitFor();
    assert.equal(await link.innerText(), NAME);
    await link.click();
    await page.getByRole('heading', { name: `${NAME}: flows` }).waitFor();
    await page.locator('.chart canvas').waitFor();
    await check(page);

    await page.getByRole('link', { name: 'Configuration' }).click();
    const field = await configurationField(page);
    const text = await field.inputValue();
    await field.fill(text.replace('permit any', `permit any ${WORD}`));
    await page.locator('main li', { hasText: WORD }).waitFor();
    await page.locator('.difference', { hasText: WORD }).waitFor();
    await check(page);

    await page.evaluate((base) => (location.hash = `${base}/modules/route`), page.url().match(/#\/[^/]+/)[0]);
    await page.getByRole('textbox', { name: 'Changes' }).fill(`add ${WORD}`);
    await page.getByRole('button', { name: 'Change the table' }).click();
    await page.getByText(`Line 1: "${WORD}"`).waitFor();
    await check(page);
    await page.evaluate((name) => (location.hash = `#/${encodeURIComponent(name)}/flows`), `${WORD}${NAME}`);
    await page.getByText(`No pipeline is called '${WORD}${NAME}'`).waitFor();
    await check(page);
}

/** Fails if the markup has become elements. */
async function check(page) {
    assert.equal(await page.locator('b, img').count(), 0, 'a text has become an element');
}
