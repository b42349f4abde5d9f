// Every view has its content, in light and dark and at phone width, without findings of axe-core.

import assert from 'node:assert/strict';
import { picture } from '../browser.mjs';
import { EDGE, SLOW } from '../processes.mjs';

/** What each view has when its data are there. A view that is missing here has ANY. */
const CONTENT = {
    flows: '.chart canvas',
    pipeline: '.box:has-text("pps") >> nth=3',
    modules: 'td:has-text("pps")',
    workers: 'tbody td',
    topology: '.cores li:has-text("worker 0, busy")',
    // The first figures are there after up to 20 s.
    history: 'canvas',
    configuration: 'textarea',
};
const ANY = ':is(td, svg, canvas, textarea)';
const OTHERS = {
    overview: ['#/', 'tr[data-instance] td:has-text("pps")'],
    module: ['#/edge/modules/route', 'pre:has-text("ip_lookup")'],
    unknown: ['#/no-such-pipeline/flows', 'p:has-text("No pipeline is called")'],
};

export default async function ({ world, browser, measure }) {
    await world.start({ edge: EDGE, slow: SLOW });
    for (const colorScheme of ['light', 'dark']) {
        const page = await browser.open(world, { token: world.tokens.admin, colorScheme });
        const painted = await page.waitForFunction(
            () => performance.getEntriesByName('first-contentful-paint')[0]?.startTime,
        );
        measure(`first paint (${colorScheme}), ms`, Math.round(await painted.jsonValue()));
        assert.ok(!page.url().includes('token'), 'the token stays in the address');
        await page.evaluate(() => (location.hash = '#/slow/flows'));
        const links = page.locator('nav a', { hasNotText: /^(Overview|edge)$/ });
        await links.first().waitFor();
        const names = (await links.allInnerTexts()).map((name) => name.toLowerCase());
        for (const name of Object.keys(CONTENT)) assert.ok(names.includes(name), `${name} is not in ${names}`);
        const views = names.map((name) => [name, `#/slow/${name}`, CONTENT[name] ?? ANY]);
        for (const [name, [hash, content]] of Object.entries(OTHERS)) views.push([name, hash, content]);
        for (const [name, hash, content] of views) await look(browser, page, `${name}-${colorScheme}`, hash, content);
        if (colorScheme === 'dark') continue;
        await page.setViewportSize({ width: 375, height: 740 });
        for (const [name, hash, content] of views) await look(browser, page, `${name}-phone`, hash, content);
    }
}

/** Opens a view, waits for its content, and checks it. */
async function look(browser, page, name, hash, content) {
    await page.evaluate((to) => (location.hash = to), hash);
    await page.locator('main').locator(content).first().waitFor();
    const isTooWide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth + 1);
    assert.ok(!isTooWide, `${name}: the page scrolls sideways`);
    await browser.checkPolicy(page, name);
    if (!name.endsWith('phone')) await browser.checkAccess(page, name);
    await picture(page, name);
}
