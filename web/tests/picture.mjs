// Makes docs/page.png: the view "flows" of the demo, 25 seconds after its start.
//
// usage: node web/tests/picture.mjs [FILE]
//
// FOREBAY is the program, by default target/release/forebay (`make demo` builds it).

import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const root = fileURLToPath(new URL('../../', import.meta.url));
const [file = `${root}docs/page.png`] = process.argv.slice(2);
const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox'],
});
// The demo prints the token only to a terminal: `script` is one.
const demo = spawn('script', ['-qec', 'scripts/demo 60s', '/dev/null'], { cwd: root });
try {
    const address = await new Promise((resolve, reject) => {
        let text = '';
        demo.stdout.on('data', (data) => {
            text += data;
            const found = /http:\S+#token=[\w-]+/.exec(text);
            if (found) resolve(found[0]);
        });
        demo.on('exit', () => reject(new Error(`the demo ended:\n${text}`)));
    });
    demo.stdin.write('\n');
    const page = await browser.newPage({ viewport: { width: 1000, height: 1120 } });
    await page.goto(address);
    await page.locator('tr[data-instance] a').first().waitFor();
    const name = await page.locator('tr[data-instance]').getAttribute('data-instance');
    await page.evaluate((hash) => (location.hash = hash), `#/${encodeURIComponent(name)}/flows`);
    await page.waitForTimeout(25_000);
    await page.screenshot({ path: file });
} finally {
    await browser.close();
    demo.kill('SIGINT');
}
