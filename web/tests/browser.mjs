// The page in Chromium, with a record of its faults.

import { mkdir, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';
import { PATIENCE_MS, until } from './processes.mjs';

const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** The folder for pictures, if they are wanted. */
const folder = process.env.SCREENSHOTS;

/** Makes a picture of the whole page, if pictures are wanted. */
export async function picture(page, name) {
    if (!folder) return;
    await mkdir(folder, { recursive: true });
    // Charts and transitions are drawn in the next frames.
    await page.waitForTimeout(1_500);
    await page.screenshot({ path: `${folder}/${name}.png`, fullPage: true });
}

export class Browser {
    contexts = [];
    /** Errors in the console, violations of the policy, and findings of axe-core. */
    faults = [];

    static async launch(executablePath) {
        const it = new Browser();
        it.chromium = await chromium.launch({
            executablePath,
            // Chromium's own sandbox needs rights that containers lack, and the page is our own.
            args: ['--no-sandbox'],
            // The runner ends the browser.
            handleSIGINT: false,
            handleSIGTERM: false,
            handleSIGHUP: false,
        });
        return it;
    }

    /** Opens the page. `expected` matches errors in the console that belong to the scene. */
    async open(world, { token = '', hash = '', expected = /^$/, ...options } = {}) {
        const context = await this.chromium.newContext({ viewport: { width: 1280, height: 900 }, ...options });
        this.contexts.push(context);
        const page = await context.newPage();
        page.setDefaultTimeout(PATIENCE_MS);
        await page.addInitScript(() => {
            globalThis.violations = [];
            document.addEventListener('securitypolicyviolation', (event) => {
                globalThis.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`);
            });
        });
        page.on('console', (message) => {
            const text = `${message.text()} ${message.location().url}`;
            if (message.type() === 'error' && !expected.test(text)) this.faults.push(`console: ${text}`);
        });
        page.on('pageerror', (error) => this.faults.push(`${error.stack}`));
        await page.goto(token ? `${world.url}#token=${token}` : world.url + hash);
        if (token && hash) await page.evaluate((to) => (location.hash = to), hash);
        await page.locator('h1').waitFor();
        return page;
    }

    /** Records the violations of the policy in this page since the last call. */
    async checkPolicy(page, name) {
        const violations = await page.evaluate(() => globalThis.violations.splice(0));
        this.faults.push(...violations.map((violation) => `${name}: policy: ${violation}`));
    }

    /** Records the serious and critical findings of axe-core. */
    async checkAccess(page, name) {
        await page.evaluate(axe);
        const found = await page.evaluate(async () => (await globalThis.axe.run()).violations);
        for (const { impact, id, help, nodes } of found) {
            if (impact !== 'serious' && impact !== 'critical') continue;
            const first = nodes.slice(0, 3).map((node) => node.html);
            this.faults.push(`${name}: axe: ${impact} ${id}: ${help}: ${first.join(' | ')}`);
        }
    }

    /** Closes all pages. Returns and forgets their faults. */
    async closePages(scene) {
        for (const page of this.pages()) await this.checkPolicy(page, scene);
        for (const context of this.contexts.splice(0)) await context.close();
        return this.faults.splice(0);
    }

    pages() {
        return this.contexts.flatMap((context) => context.pages());
    }
}

/** Returns the field of the configuration, after the page has read the text. */
export async function configurationField(page) {
    const field = page.getByRole('textbox', { name: 'Configuration' });
    await until('the configuration', async () => (await field.inputValue()) !== '');
    return field;
}
