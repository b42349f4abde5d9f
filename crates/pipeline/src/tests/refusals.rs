//! Every kind of mistake: the whole message, with its line.

use super::load;

/// The problems of a text whose first line is the one after the opening quotes. Lists of what is registered, which
/// grow with every function, are left out.
fn refused(text: &str) -> String {
    let problems = load(text.strip_prefix('\n').unwrap_or(text)).err().expect("refused").to_string();
    let short = |line: &str| {
        let end = [": there are ", ": allowed is one, of "].iter().filter_map(|list| Some(line.find(list)? + list.len())).min();
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
"), @"");
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
"), @"");
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
"), @"");
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
"), @"");
    insta::assert_snapshot!(refused("
ports: { out: { test_port: { receives: false } } }
modules: { a: { test_pass: } }
pipeline: [a -> out]
"), @"");
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
"), @"");
}

#[test]
fn state_workers_and_control() {
    insta::assert_snapshot!(refused("
ports: { in: { test_port: } }
state:
  used: { test_table: { size: 1 } }
  unused: { test_table: { size: 1 } }
modules:
  a: { test_pass: { table: used } }
pipeline: [in -> a -> in]
workers: [{ core: 1 }, { core: 2, dispatch: none }]
control: { batching: optimal }
"), @"");
    insta::assert_snapshot!(refused("
ports: { in: { test_port: } }
state:
  none: { test_table: { size: 0 } }
  odd: { test_tabel: }
modules:
  a: { test_pass: { table: non } }
pipeline: [in -> a -> in]
control: { btching: optimal }
"), @"");
}

#[test]
fn texts_that_are_not_configurations() {
    insta::assert_snapshot!(refused("ports: [\n"), @"");
    insta::assert_snapshot!(refused("just words\n"), @"");
    insta::assert_snapshot!(refused("a: 1\na: 2\n"), @"");
}
