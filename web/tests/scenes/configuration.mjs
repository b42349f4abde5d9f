// The configuration is changed in the page: a reload, a text with two faults, and a text that has become old.

import assert from 'node:assert/strict';
import { configurationField, picture } from '../browser.mjs';
import { EDGE, until } from '../processes.mjs';

export default async function ({ world, browser }) {
    await world.start({ edge: EDGE });
    const page = await browser.open(world, {
        token: world.tokens.admin,
        hash: '#/edge/configuration',
        // The browser reports each response that is no success: the refused checks, and the old version.
        expected: /status of (412|422)/,
    });
    await appliesAChange(world, page);
    await showsFaults(world, page);
    await showsAnOldVersion(world, page);
    await keepsATextThatIsTypedMeanwhile(world, page);
}

async function appliesAChange(world, page) {
    const text = await edit(page, (old) => {
        assert.match(old, /2kpps/, old);
        return old.replace('2kpps', '3kpps');
    });
    await page.getByText('No fault was found. The changes can be applied.').waitFor();
    const difference = await page.getByRole('region', { name: 'Difference' }).innerText();
    assert.match(difference, /^- .*2kpps[^]*^\+ .*3kpps/m, 'the difference has the change');
    await page.getByRole('button', { name: 'Apply' }).click();
    await page.getByText(/^In force: \d+ modules changed/).waitFor();
    assert.equal(await world.configuration('edge'), text, 'the pipeline has the text of the page');
    assert.equal(await page.getByRole('textbox', { name: 'Configuration' }).inputValue(), text);
    // The figures of the page follow: they are those of the new generator.
    await page.getByRole('link', { name: 'Overview' }).click();
    await page.locator('tr[data-instance=edge]', { hasText: /3\.\d+ kpps/ }).waitFor();
}

async function showsFaults(world, page) {
    await page.goto(`${world.url}#/edge/configuration`);
    const before = await world.configuration('edge');
    const lineOf = (text, part) => text.split('\n').findIndex((line) => line.includes(part)) + 1;
    const text = await edit(page, (old) => old.replace('0.0.0.0/0 ', '0.0.0.0/33 ').replace('permit any', 'permt any'));
    const lines = [lineOf(text, '/33'), lineOf(text, 'permt')];
    await page.getByText('2 faults', { exact: true }).waitFor();
    const faults = page.locator('main li');
    const shown = await faults.allInnerTexts();
    assert.equal(shown.length, 2, shown.join('\n'));
    for (const line of lines) assert.ok(shown.some((one) => one.startsWith(`Line ${line} `)), `${line}: ${shown}`);
    // What is wrong, and what is allowed.
    assert.ok(shown.some((one) => /33.*\b32\b/.test(one)), shown.join('\n'));
    assert.ok(shown.some((one) => /permt.*permit/.test(one)), shown.join('\n'));
    const marked = await page.locator('.numbers .bad').allInnerTexts();
    assert.deepEqual(marked, [...lines].sort((a, b) => a - b).map((line) => `●${line}`));
    await faults.filter({ hasText: 'permt' }).getByRole('button').click();
    const selected = await page.getByRole('textbox', { name: 'Configuration' }).evaluate((field) =>
        field.value.slice(field.selectionStart, field.selectionEnd),
    );
    assert.match(selected, /permt/, 'the button leads to the line');
    assert.ok(await page.getByRole('button', { name: 'Apply' }).isDisabled());
    assert.equal(await world.configuration('edge'), before, 'nothing was applied');
    await picture(page, 'configuration-faults');
    await page.getByRole('button', { name: 'Discard, and read again' }).click();
    await page.getByText('This is the configuration in force.').waitFor();
}

/** Two readers change the same version: the second learns it, and keeps the own text. */
async function showsAnOldVersion(world, page) {
    const mine = await edit(page, (old) => old.replace('3kpps', '4kpps'));
    await page.getByText('No fault was found. The changes can be applied.').waitFor();
    // The page must not learn of the change before it sends its own: the stream and reads wait.
    const { release } = await holdReads(page);
    await world.change('edge', '3kpps', '5kpps');
    await page.getByRole('button', { name: 'Apply' }).click();
    await page.getByText(/so copy it first/).waitFor();
    assert.equal(await page.getByRole('textbox', { name: 'Configuration' }).inputValue(), mine, 'the text is kept');
    assert.match(await world.configuration('edge'), /5kpps/, 'the change of the other reader is kept');
    // With the reload in the stream, the page says so by itself, and refuses to apply the text.
    await release();
    await page.getByText('The configuration in force has changed since this one was read.').waitFor();
    assert.ok(await page.getByRole('button', { name: 'Apply' }).isDisabled());
    await picture(page, 'configuration-old');
    await page.getByRole('button', { name: 'Discard, and read again' }).click();
    await page.getByText('This is the configuration in force.').waitFor();
    assert.match(await page.getByRole('textbox', { name: 'Configuration' }).inputValue(), /5kpps/);
}

/** The page reads the configuration after a reload. If the reader types in this time, the text stays. */
async function keepsATextThatIsTypedMeanwhile(world, page) {
    const { held, release } = await holdReads(page);
    await world.change('edge', '5kpps', '6kpps');
    await until('the page to read the configuration', () => held.length > 0);
    const mine = await edit(page, (old) => old.replace('5kpps', '7kpps'));
    await release();
    await page.getByText('The configuration in force has changed since this one was read.').waitFor();
    assert.equal(await page.getByRole('textbox', { name: 'Configuration' }).inputValue(), mine, 'the text is kept');
}

/** Lets the page wait for configurations. `release` waits for one, and lets all continue. */
async function holdReads(page) {
    const held = [];
    const hold = (route) => (route.request().method() === 'GET' ? held.push(route) : route.continue());
    await page.route('**/config', hold);
    const release = async () => {
        await until('the page to read the configuration', () => held.length > 0);
        for (const route of held) await route.continue();
        await page.unroute('**/config', hold);
    };
    return { held, release };
}

/** Changes the text as a reader would, and returns it. */
async function edit(page, change) {
    const field = await configurationField(page);
    const text = change(await field.inputValue());
    await field.fill(text);
    return text;
}
