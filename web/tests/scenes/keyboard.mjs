// Everything is reached with Tab, Enter and the arrow keys, and the focus is always visible.

import assert from 'node:assert/strict';
import { configurationField } from '../browser.mjs';
import { EDGE } from '../processes.mjs';

/** More elements than any view has. */
const MOST = 250;

/** Equal branches, so that the graph has a group. */
const BRANCHES = EDGE.replace("'10.0.0.0/8 1'", "'10.0.0.0/8 1', '10.1.0.0/16 2', '10.2.0.0/16 3'")
    .replace('modules:\n', 'modules:\n  c: { counter: }\n  d: { counter: }\n')
    .replace('pipeline:\n', 'pipeline:\n  - route[2] -> c -> out\n  - route[3] -> d -> out\n');

export default async function ({ world, browser }) {
    await world.start({ edge: BRANCHES });
    const page = await browser.open(world);
    await page.locator('tr[data-instance=edge]', { hasText: 'pps' }).waitFor();
    await signIn(world, page);
    await follow(page, 'edge', 'flows');
    const [, first, ...views] = await page.locator('nav a').allInnerTexts();
    assert.equal(first, 'Flows', 'the view that is open');
    assert.ok(views.length >= 6 && views.includes('Configuration'), views.join());
    for (const view of views) {
        await follow(page, view, view.toLowerCase());
        if (view === 'Pipeline') await expand(page);
    }
    await follow(page, 'Configuration', 'configuration');
    await apply(world, page);
}

async function signIn(world, page) {
    await tabTo(page, page.locator('.token summary'));
    await page.keyboard.press('Enter');
    await tabTo(page, page.getByLabel('Token', { exact: true }));
    await page.keyboard.type(world.tokens.admin);
    await page.keyboard.press('Enter');
    await page.getByText('Role: admin', { exact: true }).waitFor();
}

/** Follows a link of the navigation. */
async function follow(page, link, view) {
    await tabTo(page, page.locator(`nav a:text-is("${link}")`));
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: `edge: ${view}` }).waitFor();
    // The focus moves to the heading, so that the next Tab leads into the view.
    await page.locator('h1:focus').waitFor();
}

async function expand(page) {
    const group = page.getByRole('button', { name: /^counter × \d$/ });
    await group.waitFor();
    const before = await page.locator('.box').count();
    await tabTo(page, group);
    await page.keyboard.press('Enter');
    await page.locator('.box').nth(before).waitFor();
}

/** Changes the rate with the keyboard: the first "2kpps" is found by the arrow keys. */
async function apply(world, page) {
    const field = await configurationField(page);
    await tabTo(page, field);
    const text = await field.inputValue();
    const before = text.slice(0, text.indexOf('2kpps')).split('\n');
    await page.keyboard.press('Control+Home');
    for (let line = 1; line < before.length; line += 1) await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Home');
    for (let column = 0; column < before.at(-1).length; column += 1) await page.keyboard.press('ArrowRight');
    await page.keyboard.press('Delete');
    await page.keyboard.type('3');
    await page.getByText('No fault was found. The changes can be applied.').waitFor();
    await tabTo(page, page.getByRole('button', { name: 'Apply' }));
    await page.keyboard.press('Enter');
    await page.getByText(/^In force: /).waitFor();
    assert.match(await world.configuration('edge'), /3kpps/);
}

/** Presses Tab until the element has the focus. On the way, each element with the focus must show it. */
async function tabTo(page, element) {
    const wanted = await element.elementHandle();
    for (let pressed = 0; pressed < MOST; pressed += 1) {
        await page.keyboard.press('Tab');
        const { isThere, isHidden, html } = await page.evaluate((to) => {
            const now = document.activeElement;
            const { outlineStyle, outlineWidth } = getComputedStyle(now);
            const isHidden = now !== document.body && (outlineStyle === 'none' || parseFloat(outlineWidth) < 1);
            return { isThere: now === to, isHidden, html: now.outerHTML.slice(0, 200) };
        }, wanted);
        assert.ok(!isHidden, `the focus is not visible: ${html}`);
        if (isThere) return;
    }
    assert.fail(`${MOST} times Tab do not lead to ${element}`);
}
