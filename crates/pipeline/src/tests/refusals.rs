//! Tests the whole message of every kind of error, with its line.

mod messages;
mod workers;

use super::load;

/// Returns the errors of a text. Its first line is the one after the opening quotes. Omits lists of registered names,
/// which grow with every function.
fn refused(text: &str) -> String {
    let problems = load(text.strip_prefix('\n').unwrap_or(text)).err().expect("refused").to_string();
    let short = |line: &str| {
        let is_registered = ["there is no function", "there is no kind of"].iter().any(|start| line.contains(start));
        let list = if is_registered { ": there are " } else { ": allowed is 1 of " };
        let end = line.find(list).map(|at| at + list.len());
        end.map_or_else(|| line.to_owned(), |end| format!("{}…", &line[..end]))
    };
    problems.lines().map(short).collect::<Vec<_>>().join("\n")
}

#[test]
fn keys_that_are_not_known_or_missing() {
    insta::assert_snapshot!(refused("
ports: { in: { test_port: } }
modulse: {}
modules:
  a: { test_pas: {} }
  b: { test_pass: { afer: 1us } }
  c: { test_split: { } }
  d: { test_split: { gates: [x] }, test_pass: }
  e: {}
  f: test_pass
  'g h': { test_pass: }
pool: { chunk: 3 }
"), @"
        test.yaml:1: `pipeline` is missing (Where packets go: lines such as `port -> module -> module[gate] -> port`)
        test.yaml:2: unknown key 'modulse' (did you mean 'modules'?): allowed are batch, buffers, control, flows, \
            fold, modules, name, pipeline, pool, ports, scheduler, seed, shares, state, workers
        test.yaml:4: modules.a: there is no function 'test_pas' (did you mean 'test_pass'?): there are …
        test.yaml:5: modules.b.test_pass: unknown key 'afer' (did you mean 'after'?): allowed are after, table
        test.yaml:6: modules.c.test_split: `gates` is missing (The gates' names)
        test.yaml:7: modules.d: it has 2 keys: allowed is 1 of …
        test.yaml:8: modules.e: it has no key: allowed is 1 of …
        test.yaml:9: modules.f: 'test_pass' is not a mapping: write `f: { test_pass: }`, or with parameters `f: { \
            test_pass: { ... } }`
        test.yaml:10: modules: 'g h' is not a name: allowed are letters, digits, '_' and, between them, '-'
        test.yaml:11: pool: unknown key 'chunk' (did you mean 'chunks'?): allowed are chunks, frame
        ");
}

#[test]
fn values_that_do_not_fit() {
    insta::assert_snapshot!(refused("
name: 100
batch: 257
seed: -1
pool: { chunks: 0, frame: big }
ports: { in: { test_port: { receives: 1 } }, old: { tset_port: } }
modules:
  a: { test_pass: { after: 300 } }
  b: { test_pass: { after: 300 minutes } }
  c: { test_pass: { after: 0us } }
  d: { test_split: { gates: [x, 1, bad], action: dney, times: 10 } }
  e: { test_split: { gates: [ok, bad] } }
  h: { test_split: { gates: [ok, ok] } }
buffers:
  a: { trigger: 300, hold: 1 }
  z: { trigger: 1 }
  in: { trigger: 1 }
pipeline: [3]
flows:
  - { name: x, path: 3, slo: 0, percentile: 0 }
workers: []
"), @"
        test.yaml:1: name: '100' is a number or truth value where text is expected: put it in quotes
        test.yaml:2: batch: '257' is out of range: allowed is a whole number from 1 to 256
        test.yaml:3: seed: '-1' is out of range: allowed is a whole number from 0 to 18446744073709551615
        test.yaml:4: pool.chunks: '0' is out of range: allowed is a whole number from 1 to 16777216
        test.yaml:4: pool.frame: 'big' is not a whole number: allowed are digits alone, from 64 to 65343
        test.yaml:5: ports.in.test_port.receives: '1' is not true or false
        test.yaml:5: ports.old: there is no kind of port 'tset_port' (did you mean 'test_port'?): there are …
        test.yaml:7: no packet reaches module 'a': write a line that leads to it, or remove the module
        test.yaml:7: modules.a.test_pass.after: '300' has no unit: write a number with a unit, such as 300us (units: \
            ns, us, ms, s, min, h, d); up to 104d
        test.yaml:8: no packet reaches module 'b': write a line that leads to it, or remove the module
        test.yaml:8: modules.b.test_pass.after: '300 minutes' is not a span of time (did you mean 300min?): write a \
            number and a unit, such as 300us or 5min (units: ns, us, ms, s, min, h, d); up to 104d
        test.yaml:9: no packet reaches module 'c': write a line that leads to it, or remove the module
        test.yaml:9: modules.c.test_pass.after: '0us' is no time: allowed is more
        test.yaml:10: no packet reaches module 'd': write a line that leads to it, or remove the module
        test.yaml:10: modules.d.test_split.gates[1]: '1' is a number or truth value where text is expected: put it in \
            quotes
        test.yaml:10: modules.d.test_split.action: 'dney' does not fit (did you mean 'deny'?): allowed are permit, deny
        test.yaml:10: modules.d.test_split.times: '10' is out of range: allowed is a whole number from 0 to 9
        test.yaml:11: no packet reaches module 'e': write a line that leads to it, or remove the module
        test.yaml:11: modules.e.test_split.gates[1]: 'bad' is not allowed
        test.yaml:12: no packet reaches module 'h': write a line that leads to it, or remove the module
        test.yaml:12: modules.h.test_split: two gates are called 'ok': give each gate its own name
        test.yaml:14: buffers.a.trigger: '300' is out of range: allowed is a whole number from 0 to 256
        test.yaml:14: buffers.a.hold: '1' has no unit: write a number with a unit, such as 1us (units: ns, us, ms, s, \
            min, h, d); up to 104d
        test.yaml:15: no module is called 'z': there are a, b, c, d, e, h
        test.yaml:16: 'in' is a port: buffers belong to modules
        test.yaml:17: pipeline[0]: '3' is a number or truth value where text is expected: put it in quotes
        test.yaml:19: flows[0].path: '3' does not fit: allowed are text, a list
        test.yaml:19: flows[0].slo: '0' has no unit: write a number with a unit, such as 0us (units: ns, us, ms, s, \
            min, h, d); up to 104d
        test.yaml:19: flows[0].percentile: '0' is out of range: allowed is a number above 0 to 100
        test.yaml:20: workers: the list is empty: at least 1 item is needed
        ");
}

#[test]
fn lines_that_cannot_be() {
    insta::assert_snapshot!(refused("
ports:
  in: { test_port: { sends: false } }
  out: { test_port: { receives: false } }
  both: { test_port: }
  idle: { test_port: { receives: false } }
modules:
  a: { test_pass: }
  s: { test_split: { gates: [x, y, z] } }
  b: { test_pass: }
  both: { test_pass: }
  drop: { test_pass: }
  lone: { test_pass: }
pipeline:
  - in -> s
  - s -> a
  - s[w] -> a
  - s[x] -> out -> b
  - s[x] -> out
  - s[x] -> drop
  - a -> s[y]
  - a -> drop -> b
  - in[0] -> a
  - b -> in
  - out -> b
  - nothing -> a
  - ot -> a
  - a
  - a - > b
"), @"
        test.yaml:4: packets that enter by port 'both' lead nowhere: write a line that starts with it, such as `both \
            -> drop`
        test.yaml:5: port 'idle' is not used: write a line that ends with it, or remove the port
        test.yaml:8: gates y, z of module 's' lead nowhere: write a line such as `s[y] -> drop`
        test.yaml:10: 'both' is the name of a port and of a module: each name is allowed once
        test.yaml:10: no packet reaches module 'both': write a line that leads to it, or remove the module
        test.yaml:11: 'drop' is the target of unwanted packets in `pipeline`: choose another name
        test.yaml:11: no packet reaches module 'drop': write a line that leads to it, or remove the module
        test.yaml:12: no packet reaches module 'lone': write a line that leads to it, or remove the module
        test.yaml:15: module 's' has several gates: write `s[gate]` with one of x, y, z
        test.yaml:16: module 's' has no gate 'w': it has x, y, z
        test.yaml:17: port 'out' is in the middle of a line: a port is allowed only at the start and at the end
        test.yaml:19: gate 'x' of module 's' has a target already, in line 18: only one target is allowed
        test.yaml:20: the line ends with a gate: write where 's[y]' leads, such as `s[y] -> drop`
        test.yaml:21: 'drop' is always the end of a line: remove the rest of the line
        test.yaml:22: 'in' has no gates: only modules have gates
        test.yaml:23: no packet can leave by port 'in', which only receives: end the line with another port or `drop`
        test.yaml:24: no packet enters by port 'out', which only sends: start the line with another port
        test.yaml:25: no module or port is called 'nothing': there are in, out, both, idle, a, s, b, both, drop, lone, \
            drop
        test.yaml:26: no module or port is called 'ot' (did you mean 'out'?)
        test.yaml:27: 'a' leads nowhere: write a target, such as `a -> drop`
        test.yaml:28: 'a - > b' is not a name: lines are names with `->` between in 'a - > b'
        ");
}

#[test]
fn packets_that_would_go_nowhere_or_in_a_circle() {
    insta::assert_snapshot!(refused("
ports:
  in: { test_port: }
  other: { test_port: { sends: false } }
modules:
  s: { test_split: { gates: [x, y, z] } }
  a: { test_pass: }
  b: { test_pass: }
  c: { test_pass: }
  self: { test_pass: }
  far: { test_pass: }
  farther: { test_pass: }
pipeline:
  - in -> s
  - s[x] -> a -> b -> c -> a
  - s[y] -> self -> self
  - far -> farther
"), @"
        test.yaml:3: packets that enter by port 'other' lead nowhere: write a line that starts with it, such as \
            `other -> drop`
        test.yaml:5: gate z of module 's' leads nowhere: write a line such as `s[z] -> drop`
        test.yaml:10: no packet reaches module 'far': write a line that leads to it, or remove the module
        test.yaml:11: gate 0 of module 'farther' leads nowhere: write a line such as `farther -> drop`
        test.yaml:14: packets would go in a circle, a -> b -> c -> a: remove one of these connections
        test.yaml:15: packets would go in a circle, self -> self: remove one of these connections
        ");
    insta::assert_snapshot!(refused("
ports: { out: { test_port: { receives: false } } }
modules: { a: { test_pass: } }
pipeline: [a -> out]
"), @r"
        test.yaml:1: no packet enters by any port: add a port that receives
        test.yaml:2: no packet reaches module 'a': write a line that leads to it, or remove the module
        ");
}

#[test]
fn flows_that_no_packet_can_take() {
    insta::assert_snapshot!(refused("
ports: { in: { test_port: } }
modules:
  s: { test_split: { gates: [x, y] } }
  a: { test_pass: }
  b: { test_pass: }
pipeline:
  - in -> s
  - s[x] -> a -> in
  - s[y] -> b -> in
flows:
  - { name: one, path: [s[x], b] }
  - { name: two, path: [a, s] }
  - { name: three, path: [s[z], nob] }
  - { name: four, path: [s[x], in] }
  - { name: five, path: [s, b] }
  - { name: five, path: [s, a], slo: 0us }
  - { name: six, path: [s, b] }
  - { name: seven, path: [] }
  - { name: eight, path: s -> drop }
"), @"
        test.yaml:11: flows[0].path: no packet can take the path of flow 'one': nothing leads from 's[x]' to 'b'
        test.yaml:12: flows[1].path: no packet can take the path of flow 'two': nothing leads from 'a' to 's'
        test.yaml:13: flows[2].path: module 's' has no gate 'z': it has x, y
        test.yaml:13: flows[2].path: no module is called 'nob': there are s, a, b
        test.yaml:14: flows[3].path: 'in' is a port: a flow's path names only modules
        test.yaml:16: flows[5].name: two flows are called 'five', the first in line 15: give each flow its own name
        test.yaml:16: flows[5].slo: a delay objective of 0us cannot be met: allowed is more than 0
        test.yaml:17: flows[6].path: the flows 'five' and 'six' have the same path, the first in line 15: remove one, \
            because a packet belongs to one flow
        test.yaml:18: flows[7].path: the path is empty: name at least one module
        test.yaml:19: flows[8].path: a flow's path names modules, not 'drop'
        ");
}

#[test]
fn rate_objectives_that_are_impossible_or_without_a_controller() {
    let flows = |rest: &str| {
        refused(&format!(
            "
ports: {{ in: {{ test_port: }} }}
modules:
  s: {{ test_split: {{ gates: [x, y] }} }}
  a: {{ test_pass: }}
pipeline:
  - in -> s
  - s[x] -> a -> in
  - s[y] -> in
{rest}"
        ))
    };
    insta::assert_snapshot!(flows("scheduler: weighted-fair
control: { batching: fair }
flows:
  - { name: none, path: [s[x], a], min_rate: 0pps }
  - { name: less, path: [s], min_rate: 0.5pps }
  - { name: much, path: [a], min_rate: 2000Gpps }
  - { name: bits, path: [s[y]], min_rate: 1Gbit/s }
  - { name: slow, path: [s[y], a], min_rate: 0bps }
"), @"
        test.yaml:12: flows[0].min_rate: a rate objective of 0pps: allowed are 1pps to 1000Gpps
        test.yaml:13: flows[1].min_rate: a rate objective of 0.5pps: allowed are 1pps to 1000Gpps
        test.yaml:14: flows[2].min_rate: a rate objective of 2000Gpps: allowed are 1pps to 1000Gpps
        test.yaml:15: flows[3].min_rate: '1Gbit/s' is not a bit rate (did you mean 1Gbps?): write a number and a \
            unit, such as 10Gbps (units: bps, kbps, Mbps, Gbps, Tbps); from 1pps to 1000Gpps or 1bps to 1Tbps
        test.yaml:16: flows[4].path: no packet can take the path of flow 'slow': nothing leads from 's[y]' to 'a'
        test.yaml:16: flows[4].min_rate: a rate objective of 0bps: allowed are 1bps to 1Tbps
        ");
    insta::assert_snapshot!(flows("flows: [{ name: one, path: [s[x], a], min_rate: 1Mpps }]
"), @"test.yaml:9: flows[0].min_rate: a rate objective needs a controller that keeps it: write `scheduler: \
    weighted-fair` and `control: { batching: fair }` too");
    insta::assert_snapshot!(flows("control: { batching: fair }
flows: [{ name: one, path: [s[x], a], min_rate: 1Mpps }]
"), @"test.yaml:9: control.batching: fair sets weights: write `scheduler: weighted-fair` too");
}

#[test]
fn texts_that_are_not_configurations() {
    insta::assert_snapshot!(refused("ports: [\n"), @r"test.yaml:1: not YAML: unclosed bracket '['");
    insta::assert_snapshot!(refused("just words\n"), @r"test.yaml:1: 'just words' is not a mapping");
    insta::assert_snapshot!(refused("a: 1\na: 2\n"), @"
        test.yaml:1: `pipeline` is missing (Where packets go: lines such as `port -> module -> module[gate] -> port`)
        test.yaml:1: `ports` is missing (Where packets enter and leave, by name)
        test.yaml:1: unknown key 'a': allowed are batch, buffers, control, flows, fold, modules, name, pipeline, \
            pool, ports, scheduler, seed, shares, state, workers
        test.yaml:2: the key 'a' is here a second time; the first is in line 1: remove one of them
        ");
}

/// Regression: an error in a state was reported again by each module that names it, and an error in a line by its
/// gates.
#[test]
fn one_error_is_reported_once() {
    let faulty = refused(
        "
ports: { in: { generator: }, out: { sink: } }
state: { n: { nat: { pool: 192.0.2.0/33 } } }
modules: { o: { nat_out: { state: n } }, i: { nat_in: { state: n } }, x: { nat_in: { state: m } } }
pipeline: [in -> o -> i -> x -> out]
",
    );
    insta::assert_snapshot!(faulty, @r"
        test.yaml:2: state.n.nat.pool: '192.0.2.0/33' is neither an IPv4 prefix such as 192.0.2.0/28 nor an IPv4 address
        test.yaml:3: modules.x.nat_in.state: no state is called 'm': allowed is n
        ");
    let unknown = refused(
        "
ports: { in: { generator: }, out: { sink: } }
state: { n: { nta: { pool: 192.0.2.0/33 } } }
modules: { o: { nat_out: { state: n } } }
pipeline: [in -> o -> out]
",
    );
    insta::assert_snapshot!(unknown, @"test.yaml:2: state.n: there is no kind of state 'nta' (did you mean 'nat'?): \
        there are …");
    let astray = refused(
        "
ports: { in: { generator: }, b: { generator: }, c: { generator: }, out: { sink: } }
modules: { m: { counter: }, s: { test_split: { gates: [x, y] } } }
pipeline: [in -> m -> sinks, b -> nowhere -> out, 'c -> s', 's[x] -> sinks']
",
    );
    insta::assert_snapshot!(astray, @r"
        test.yaml:2: gate y of module 's' leads nowhere: write a line such as `s[y] -> drop`
        test.yaml:3: no module or port is called 'sinks': there are in, b, c, out, m, s, drop
        test.yaml:3: no module or port is called 'nowhere': there are in, b, c, out, m, s, drop
        test.yaml:3: no module or port is called 'sinks': there are in, b, c, out, m, s, drop
        ");
}
