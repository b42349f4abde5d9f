// Tests the parts of the page that need no browser: `node --test tests/unit.mjs`.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createServer } from 'vite';

const vite = await createServer({ logLevel: 'error', appType: 'custom', server: { middlewareMode: true, ws: false } });
after(() => vite.close());
const { place, WIDTH, HEIGHT } = await vite.ssrLoadModule('/src/graph/layout.ts');
const { readPlacement, workersOf } = await vite.ssrLoadModule('/src/text/placement.ts');
const { moduleLines } = await vite.ssrLoadModule('/src/text/parameters.ts');

/** Returns random numbers from 0 to 1 that are the same in each run (mulberry32). */
function random(seed) {
    let state = seed;
    return () => {
        state = (state + 0x6d2b79f5) | 0;
        let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
        mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
        return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
    };
}

/** Checks what holds for every graph. */
function check(ids, edges) {
    const { width, height, boxes, wires } = place(ids, edges);
    assert.equal(boxes.size, ids.length);
    const all = [...boxes.values()];
    for (const { x, y } of all) {
        assert.ok(x >= 0 && x + WIDTH <= width && y >= 0 && y + HEIGHT <= height + 1e-6, `${x} ${y}`);
    }
    for (const column of new Set(all.map((box) => box.x))) {
        const heights = all.filter((box) => box.x === column).map((box) => box.y).sort((a, b) => a - b);
        heights.slice(1).forEach((y, at) => assert.ok(y - heights[at] >= HEIGHT, 'boxes overlap'));
    }
    assert.equal(wires.length, edges.filter(([from, to]) => from !== to).length);
    assert.ok(wires.every(({ path }) => !path.includes('NaN') && path.startsWith('M')));
    return boxes;
}

test('edges go from left to right', () => {
    for (let seed = 1; seed <= 100; seed += 1) {
        const next = random(seed);
        const ids = Array.from({ length: 1 + Math.floor(next() * 40) }, (_, at) => `m${at}`);
        const edges = new Map();
        for (let count = next() * 80; count > 0; count -= 1) {
            const [a, b] = [Math.floor(next() * ids.length), Math.floor(next() * ids.length)];
            if (a !== b) edges.set(`${Math.min(a, b)} ${Math.max(a, b)}`, [ids[Math.min(a, b)], ids[Math.max(a, b)]]);
        }
        const boxes = check(ids, [...edges.values()]);
        for (const [from, to] of edges.values()) {
            assert.ok(boxes.get(from).x + WIDTH < boxes.get(to).x, `seed ${seed}: ${from} to ${to}`);
        }
    }
});

test('a chain is straight, and a fan is symmetric', () => {
    const chain = check(['a', 'b', 'c'], [['a', 'b'], ['b', 'c']]);
    assert.equal(new Set([...chain.values()].map((box) => box.y)).size, 1);
    const fan = check(['s', 'x', 'y', 'z', 't'], ['x', 'y', 'z'].flatMap((one) => [['s', one], [one, 't']]));
    const [s, x, y, z, t] = ['s', 'x', 'y', 'z', 't'].map((id) => fan.get(id).y);
    assert.ok(Math.abs(s - y) < 0.01 && Math.abs(t - y) < 0.01 && Math.abs(x + z - 2 * y) < 0.01);
});

test('parallel branches do not cross', () => {
    // The branches are named in another order than their first modules.
    const ids = ['in', 'a0', 'a1', 'a2', 'b2', 'b0', 'b1', 'out'];
    const edges = [0, 1, 2].flatMap((n) => [['in', `a${n}`], [`a${n}`, `b${n}`], [`b${n}`, 'out']]);
    const boxes = check(ids, edges);
    for (const n of [0, 1, 2]) assert.ok(Math.abs(boxes.get(`a${n}`).y - boxes.get(`b${n}`).y) < 0.01);
});

test('cycles, edges to itself and an empty graph are placed', () => {
    check(['a', 'b', 'c'], [['a', 'b'], ['b', 'c'], ['c', 'a'], ['b', 'b']]);
    check(['a'], []);
    assert.equal(place([], []).boxes.size, 0);
});

const PREDICTED = {
    rate_pps: null,
    predicted_pps: 2e6,
    interval_95_pps: [1e6, 3e6],
    keeps_objective: true,
    binds: { function: 'fw', drop: 0.1 },
};
const PLACEMENT = {
    chains: [
        {
            chain: 'web',
            form: 'pipelined',
            functions: [{ module: 'fw' }, { module: 'route' }],
            seats: [{ core: 4 }, { core: 6 }],
            ...PREDICTED,
        },
        {
            chain: 'voice',
            form: 'fused',
            functions: [{ module: 'ttl' }],
            seats: [{ core: 4 }, { core: 5 }],
            ...PREDICTED,
        },
    ],
};

test('a placement gives the workers of its modules', () => {
    const placement = readPlacement(JSON.stringify(PLACEMENT));
    const modules = new Set(['fw', 'route', 'ttl']);
    const workers = new Map([[4, 0], [5, 1], [6, 2]]);
    assert.deepEqual([...workersOf(placement, modules, workers)], [['fw', [0]], ['route', [2]], ['ttl', [0, 1]]]);
    assert.throws(() => workersOf(placement, new Set(['fw', 'ttl']), workers), /no module 'route'/);
    assert.throws(() => workersOf(placement, modules, new Map([[4, 0]])), /core 6, where this pipeline has no worker/);
});

test('another file is not a placement', () => {
    assert.throws(() => readPlacement('chains: []'), /not JSON/);
    for (const text of ['null', '7', '{}', '{"chains":[null]}', '{"chains":[{"functions":[],"seats":[]}]}']) {
        assert.throws(() => readPlacement(text), /no placement/, text);
    }
    const [web, voice] = PLACEMENT.chains;
    const wrong = [
        { seats: [{ core: 4 }] },
        { form: 'other' },
        { predicted_pps: '2e6' },
        { binds: null },
        { interval_95_pps: [null, 1] },
        { functions: [{ module: 7 }, null] },
        { chain: 'voice' },
    ];
    for (const part of wrong) {
        const text = JSON.stringify({ chains: [{ ...web, ...part }, voice] });
        assert.throws(() => readPlacement(text), /no placement/, text);
    }
    assert.throws(() => readPlacement(JSON.stringify({ ...PLACEMENT, rejected: [null] })), /no placement/);
});

test('the lines of a module are found', () => {
    const text =
        "name: x\nmodules:\n  a: { ttl: {} }\n  'b c':\n    acl:\n      rules: [permit any]\n" +
        '  d: { counter: }\npipeline: []\n';
    assert.deepEqual(moduleLines(text, 'a'), { first: 3, text: 'a: { ttl: {} }' });
    assert.deepEqual(moduleLines(text, 'b c'), { first: 4, text: "'b c':\n  acl:\n    rules: [permit any]" });
    assert.deepEqual(moduleLines(text, 'd'), { first: 7, text: 'd: { counter: }' });
    assert.equal(moduleLines(text, 'name'), undefined);
});
