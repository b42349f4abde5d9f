// Opens every view of a running page, in light and dark and at phone width.
//
// Fails on an error in the console, a violation of the policy, and a serious or critical finding of axe-core.
// FOREBAY_URL: the page. FOREBAY_TOKEN: a token, if decisions, tables and the configuration are to be seen.
// SCREENSHOTS: the folder for pictures, if they are wanted.

import { readFile, mkdir } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';

const url = process.env.FOREBAY_URL ?? 'http://127.0.0.1:9640/';
const token = process.env.FOREBAY_TOKEN ?? '';
const folder = process.env.SCREENSHOTS;
const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const faults = [];

/** Opens a page that records its errors. */
async function open(browser, name, options) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
    const page = await context.newPage();
    await page.addInitScript(() => {
        globalThis.violations = [];
        document.addEventListener('securitypolicyviolation', (event) => {
            globalThis.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`);
        });
    });
    page.on('console', (message) => {
        if (message.type() === 'error') faults.push(`${name}: console: ${message.text()} ${message.location().url}`);
    });
    page.on('pageerror', (error) => faults.push(`${name}: ${error.stack}`));
    await page.goto(token ? `${url}#token=${token}` : url);
    await page.getByRole('heading', { name: 'Pipelines' }).waitFor();
    if (page.url().includes('token')) faults.push(`${name}: the token stays in the address`);
    return page;
}

/** What each view has when its data are there. */
const CONTENT = {
    overview: 'tr[data-instance] td:has-text("pps")',
    flows: '.chart canvas',
    pipeline: 'main svg text',
    module: 'main .chart canvas, main table td',
    modules: 'main table td:has-text("pps")',
    workers: 'main table td',
    history: 'main .chart canvas, main p:has-text("There are no figures")',
    configuration: token ? 'main textarea' : 'main p:has-text("needs a token")',
    unknown: 'main p',
};

/** Goes to a view by its address, and waits for its content. */
async function show(page, view, hash) {
    await page.evaluate((to) => (location.hash = to), hash);
    await page.locator(CONTENT[view]).first().waitFor();
    // Charts and transitions are drawn in the next frames.
    await page.waitForTimeout(1_000);
}

async function examine(page, name, { runAxe = true } = {}) {
    const violations = await page.evaluate(() => globalThis.violations.splice(0));
    faults.push(...violations.map((violation) => `${name}: policy: ${violation}`));
    const isTooWide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth + 1);
    if (isTooWide) faults.push(`${name}: the page scrolls sideways`);
    if (folder) await page.screenshot({ path: `${folder}/${name}.png`, fullPage: true });
    if (!runAxe) return;
    await page.evaluate(axe);
    const found = await page.evaluate(async () => (await globalThis.axe.run()).violations);
    for (const { impact, id, help, nodes } of found) {
        if (impact !== 'serious' && impact !== 'critical') continue;
        const first = nodes.slice(0, 3).map((node) => node.html);
        faults.push(`${name}: axe: ${impact} ${id}: ${help}: ${first.join(' | ')}`);
    }
}

if (folder) await mkdir(folder, { recursive: true });
const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });
try {
    for (const colorScheme of ['light', 'dark']) {
        const page = await open(browser, colorScheme, { colorScheme });
        const link = page.locator('tr[data-instance] a').first();
        await link.waitFor();
        const instance = await link.innerText();
        const base = `#/${encodeURIComponent(instance)}`;
        const { modules } = await page.evaluate(
            async (path) => (await fetch(path)).json(),
            `api/v1/instances/${encodeURIComponent(instance)}/graph`,
        );
        const module = modules.find((one) => ['ip_lookup', 'acl'].includes(one.function)) ?? modules[0];
        const views = {
            overview: '#/',
            flows: `${base}/flows`,
            pipeline: `${base}/pipeline`,
            module: `${base}/modules/${encodeURIComponent(module.name)}`,
            modules: `${base}/modules`,
            workers: `${base}/workers`,
            history: `${base}/history`,
            configuration: `${base}/configuration`,
            unknown: '#/no-such-pipeline/flows',
        };
        for (const [view, hash] of Object.entries(views)) {
            await show(page, view, hash);
            await examine(page, `${view}-${colorScheme}`);
        }
        await show(page, 'pipeline', views.pipeline);
        await page.getByRole('button', { name: 'Expand all' }).click();
        await page.waitForTimeout(500);
        await examine(page, `expanded-${colorScheme}`);
        if (colorScheme === 'light') {
            await page.setViewportSize({ width: 375, height: 740 });
            for (const [view, hash] of Object.entries(views)) {
                await show(page, view, hash);
                await examine(page, `${view}-phone`, { runAxe: false });
            }
        }
        await page.context().close();
    }
} finally {
    await browser.close();
}
for (const fault of faults) console.error(fault);
console.log(faults.length === 0 ? 'all views are in order' : `${faults.length} faults`);
process.exitCode = faults.length === 0 ? 0 : 1;
