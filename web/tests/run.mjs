// Runs the scenes of the page: each drives it in Chromium, against a server and pipelines of its own.
//
// usage: node web/tests/run.mjs [SCENE...]      all scenes by default
//
// FOREBAY: the program, by default target/debug/forebay. CHROMIUM: the browser, by default /usr/bin/chromium.
// SCREENSHOTS: a folder for pictures of all views, if they are wanted. ROUNDS: how often each scene runs (1).
// Figures that are measured and not judged are printed, and written to target/page/figures.json.
// Exit codes: 0 all scenes passed, 1 a scene failed, 2 wrong usage, or the page is too large.

import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { Browser } from './browser.mjs';
import { World } from './processes.mjs';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const DIST = join(ROOT, 'web/dist');
const OUTPUT = join(ROOT, 'target/page');
/** The largest size of the page, compressed by gzip. */
const MOST_BYTES = 80_000;
/** A scene that takes longer is stuck. */
const LIMIT_MS = 240_000;
const program = process.env.FOREBAY ?? join(ROOT, 'target/debug/forebay');
const chromium = process.env.CHROMIUM ?? '/usr/bin/chromium';
const rounds = Number(process.env.ROUNDS ?? 1);
const known = readdirSync(new URL('scenes/', import.meta.url)).map((file) => file.replace('.mjs', ''));
const scenes = process.argv.length > 2 ? process.argv.slice(2) : known;
const figures = {};

function wrong(why) {
    console.error(`run.mjs: ${why}`);
    process.exit(2);
}

for (const scene of scenes) {
    if (!known.includes(scene)) wrong(`'${scene}' is no scene: there are ${known.join(', ')}`);
}
for (const file of [program, chromium]) if (!existsSync(file)) wrong(`${file} is missing`);
if (!Number.isInteger(rounds) || rounds < 1) wrong(`ROUNDS: '${process.env.ROUNDS}': allowed are whole numbers from 1`);

/** Records a figure that is measured, but not judged: times depend on the machine. */
function measure(name, value) {
    if (figures[name] !== value) console.log(`  ${name}: ${value}`);
    figures[name] = value;
}

/** Keeps what the pages of a failed scene show. */
async function keepPages(scene) {
    for (const [index, page] of browser.pages().entries()) {
        const path = join(OUTPUT, `${scene}-${index}.png`);
        await page.screenshot({ path, timeout: 10_000 }).catch(() => undefined);
        const text = await page.locator('body').innerText({ timeout: 10_000 }).catch(String);
        console.error(`  ${path} shows ${page.url()}:\n${text.slice(0, 3_000).replaceAll(/^/gm, '    ')}`);
    }
}

/** Runs a scene in a world of its own. Returns whether it passed. */
async function run(scene) {
    const start = performance.now();
    const problems = [];
    let timer;
    world = new World(program);
    try {
        const { default: play } = await import(`./scenes/${scene}.mjs`);
        const limit = new Promise((_, reject) => {
            timer = setTimeout(() => reject(new Error(`ended after ${LIMIT_MS / 1e3} s`)), LIMIT_MS);
        });
        await Promise.race([play({ world, browser, measure }), limit]);
    } catch (error) {
        problems.push(error.stack);
        if (!isInterrupted) await keepPages(scene);
    } finally {
        clearTimeout(timer);
    }
    problems.push(...(await browser.closePages(scene)));
    await world.end();
    for (const problem of problems) console.error(`  ${problem}`);
    const seconds = ((performance.now() - start) / 1e3).toFixed(1);
    console.log(`${problems.length === 0 ? 'passed' : 'FAILED'}: ${scene}, ${seconds} s`);
    return problems.length === 0;
}

let world;
let browser;
let isInterrupted = false;
process.once('exit', () => world?.kill());
for (const [signal, code] of [['SIGINT', 130], ['SIGTERM', 143], ['SIGHUP', 129]]) {
    process.once(signal, async () => {
        isInterrupted = true;
        await Promise.allSettled([browser?.chromium.close(), world?.end()]);
        process.exit(code);
    });
}
mkdirSync(OUTPUT, { recursive: true });
const files = readdirSync(DIST).map((name) => readFileSync(join(DIST, name)));
const size = files.reduce((sum, file) => sum + gzipSync(file, { level: 9 }).length, 0);
measure('gzip size of web/dist, bytes', size);
if (size > MOST_BYTES) wrong(`web/dist has ${size} bytes (gzip): allowed are ${MOST_BYTES}`);
browser = await Browser.launch(chromium);
const failed = [];
for (const scene of scenes) {
    for (let round = 0; round < rounds && !isInterrupted; round += 1) {
        // An interruption closes the pages in the middle of a scene.
        const hasPassed = await run(scene).catch((error) => {
            if (!isInterrupted) throw error;
        });
        if (!hasPassed) failed.push(scene);
    }
}
if (!isInterrupted) {
    await browser.chromium.close();
    writeFileSync(join(OUTPUT, 'figures.json'), `${JSON.stringify(figures, null, 2)}\n`);
    console.log(failed.length === 0 ? 'all scenes passed' : `failed: ${failed.join(', ')}`);
    process.exitCode = failed.length === 0 ? 0 : 1;
}
