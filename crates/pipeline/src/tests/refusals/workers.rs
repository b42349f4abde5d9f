//! Workers, state and controllers that a configuration cannot have.

use super::refused;

#[test]
fn workers_that_cannot_be() {
    insta::assert_snapshot!(refused("
ports: { in: { test_port: } }
modules:
  a: { test_pass: }
  b: { test_pass: }
  c: { test_pass: }
pipeline: [in -> a -> b -> c -> in]
workers:
  - { core: 1, modules: [a, c, d] }
  - { core: 1, modules: [b, b] }
  - { core: 2 }
"), @"
        test.yaml:8: packets would go in a circle over workers, by way of 'b' -> 'c', and workers could wait for each \
            other for ever: let packets go from earlier workers to later ones only
        test.yaml:8: workers[0].modules: no module is called 'd': there are a, b, c
        test.yaml:9: worker 1 is bound to the same core 1 as worker 0: each worker needs its own core
        test.yaml:9: workers[1].modules: 'b' is listed twice: list it once
        test.yaml:10: worker 2 has nothing to run, because other workers run all modules: remove it, or write \
            `modules: []` to let it wait for modules
        ");
    insta::assert_snapshot!(refused("
ports: { in: { test_port: } }
modules:
  a: { test_global: }
  b: { test_pass: }
pipeline: [in -> a -> b -> in]
workers: [{ modules: [a] }, { modules: [a] }]
"), @"
        test.yaml:3: module 'a' is on 2 workers, but test_global has state that every packet may change: name the \
            module in one worker's `modules`
        test.yaml:4: module 'b' runs on no worker: name it in a worker's `modules`, or add a worker without `modules`
        ");
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
control: { batching: optimum, perod: 1s, guard: 1 }
"), @"
        test.yaml:4: no module uses the state 'unused': name it in a module, or remove it
        test.yaml:8: workers[1].dispatch: 'none' does not fit: allowed is session
        test.yaml:9: control.batching: 'optimum' does not fit (did you mean 'optimal'?): allowed are fair, gradient, \
            max, nfvnice, null, on-off, optimal, static, wfq, a mapping with one of these names
        test.yaml:9: control: unknown key 'perod' (did you mean 'period'?): allowed are batching, guard, period, workers
        test.yaml:9: control.guard: '1' is out of range: allowed is a number from 0 below 1
        ");
    insta::assert_snapshot!(refused("
ports: { in: { test_port: } }
state:
  none: { test_table: { size: 0 } }
  odd: { test_tabel: }
modules:
  a: { test_pass: { table: non } }
pipeline: [in -> a -> in]
control: { btching: optimal }
"), @"
        test.yaml:3: state.none.test_table.size: 0 entries: allowed are more
        test.yaml:4: state.odd: there is no kind of state 'test_tabel' (did you mean 'test_table'?): there are …
        test.yaml:6: modules.a.test_pass.table: no state is called 'non' (did you mean 'none'?): allowed are none, odd
        test.yaml:8: control: `batching` is missing (The controller: its name, or its name with its parameters)
        test.yaml:8: control: unknown key 'btching' (did you mean 'batching'?): allowed are batching, guard, period, \
            workers
        ");
}

#[test]
fn controllers_that_cannot_be() {
    let refused = |control: &str| {
        let pipeline = "ports: { in: { test_port: } }\nmodules: { a: { test_pass: } }\npipeline: [in -> a -> in]";
        refused(&format!("{pipeline}\ncontrol: {control}\n"))
    };
    let all = [
        "{}",
        "optimal",
        "{ batching: { optimul: } }",
        "{ batching: { optimal: {}, max: {} } }",
        "{ batching: { optimal: { speed: 3 } } }",
        "{ batching: static }",
        "{ batching: { static: { triger: 16 } } }",
        "{ batching: { static: { trigger: 300 } } }",
        "{ batching: { static: { trigger: 33 } } }",
        "{ batching: optimal, period: 10us }",
        "{ batching: optimal, period: 2h }",
        "{ batching: optimal, period: 7200s }",
        "{ batching: optimal, guard: -0.1 }",
        "{ batching: nfvnice }",
        "{ batching: optimal, workers: 0 }",
        "{ batching: optimal, workers: 257 }",
        "{ batching: optimal, workers: many }",
        "{ batching: optimal, workers: 1 }\nworkers: [{}, {}]",
        "{ batching: wfq, workers: 2 }\nscheduler: weighted-fair",
    ];
    insta::assert_snapshot!(all.map(refused).join("\n"), @"
    test.yaml:4: control: `batching` is missing (The controller: its name, or its name with its parameters)
    test.yaml:4: control: 'optimal' is not a mapping
    test.yaml:4: control.batching: unknown key 'optimul' (did you mean 'optimal'?): allowed are fair, gradient, max, \
        nfvnice, null, on-off, optimal, static, wfq
    test.yaml:4: control.batching: it has 2 keys: allowed is 1 of …
    test.yaml:4: control.batching.optimal: unknown key 'speed': none is allowed
    test.yaml:4: control.batching: static needs parameters: write `batching: { static: { trigger: 16 } }`
    test.yaml:4: control.batching.static: `trigger` is missing (Every module's trigger, 0 to the largest \
        batch)
    test.yaml:4: control.batching.static: unknown key 'triger' (did you mean 'trigger'?): allowed is trigger
    test.yaml:4: control.batching.static.trigger: '300' is out of range: allowed is a whole number from 0 to 256
    test.yaml:4: control.batching.static.trigger: a trigger of 33 packets is never reached: allowed are 0 to 32, the \
        largest batch
    test.yaml:4: control.period: a period of 10us: allowed are 1ms to 1h
    test.yaml:4: control.period: a period of 2h: allowed are 1ms to 1h
    test.yaml:4: control.period: a period of 7200s: allowed are 1ms to 1h
    test.yaml:4: control.guard: '-0.1' is out of range: allowed is a number from 0 below 1
    test.yaml:4: control.batching: nfvnice sets weights: write `scheduler: weighted-fair` too
    test.yaml:4: control.workers: '0' is out of range: allowed is a whole number from 1 to 256
    test.yaml:4: control.workers: '257' is out of range: allowed is a whole number from 1 to 256
    test.yaml:4: control.workers: 'many' is not a whole number: allowed are digits alone, from 1 to 256
    test.yaml:4: control.workers: 1 is less than the 2 under `workers`: allowed are 2 to 256
    test.yaml:4: control.workers: 2 would let modules move to other workers, which this scheduler does not \
        support: allowed is 1, or `scheduler: run-to-completion`
    ");
}
