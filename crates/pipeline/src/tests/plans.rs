//! Tests the plans of configurations.

use forebay_graph::{Plan, Step, Target};
use forebay_units::{Nanos, Percentile};
use proptest::prelude::*;

use super::{load, load_source};
use crate::{Loaded, Source};

/// The example of the language's definition.
const EXAMPLE: &str = "
name: example
batch: 64
seed: 7
pool: { chunks: 1024, frame: 1500 }
ports:
  access: { test_port: }
  core:   { test_port: { receives: true } }
state:
  nat1:   { test_table: { size: 3 } }
modules:
  route:  { test_split: { gates: ['0'] } }
  vlans:  { test_split: { gates: ['100', '200', other] } }
  fw:     { test_pass: { after: 3us } }
  out:    { test_pass: { table: nat1 } }
  back:   { test_pass: { table: nat1 } }
buffers:
  fw: { trigger: 16, hold: 300us }
pipeline:
  - access -> vlans
  - vlans[100] -> fw -> out -> route
  - vlans[200] -> route
  - vlans[other] -> drop
  - route[0] -> core
  - core -> back -> access
flows:
  - { name: video, path: [vlans[100], fw, out, route], slo: 300us, percentile: 99.9 }
  - { name: rest, path: vlans[200] -> route }
workers:
  - { core: 2, dispatch: session }
";

fn module(plan: &Plan, name: &str) -> usize {
    plan.modules.iter().position(|module| module.name == name).expect(name)
}

#[test]
fn the_example_is_a_plan() {
    // Gates in a mapping in braces are allowed, although YAML forbids brackets there.
    let loaded = load(EXAMPLE).unwrap_or_else(|problems| panic!("{problems}"));
    let plan = &loaded.plans[0];
    assert_eq!((plan.name.as_str(), plan.batch, plan.pool.chunks, plan.pool.frame), ("example", 64, 1024, 1500));
    assert_eq!((&loaded.cores[..], loaded.seed), (&[Some(2)][..], 7));
    let at = |name| Target::Module(module(plan, name));
    let names: Vec<_> = plan.modules.iter().map(|module| module.name.as_str()).collect();
    assert_eq!(names, ["vlans", "fw", "out", "route", "back"]);
    assert_eq!(
        plan.modules[0].gates,
        [("100".into(), at("fw")), ("200".into(), at("route")), ("other".into(), Target::Drop)]
    );
    assert_eq!(plan.modules[module(plan, "route")].gates, [("0".into(), Target::Port(1))]);
    assert_eq!(plan.modules[module(plan, "back")].gates, [("0".into(), Target::Port(0))]);
    assert_eq!(plan.ports.iter().map(|port| port.entry).collect::<Vec<_>>(), [Some(at("vlans")), Some(at("back"))]);
    let fw = &plan.modules[module(plan, "fw")];
    assert_eq!((fw.kind, fw.trigger, fw.hold), ("test_pass", 16, Some(Nanos(300_000))));
    let step = |name, gate| Step { module: module(plan, name), gate };
    assert_eq!(plan.flows[0].path, [step("vlans", Some(0)), step("fw", None), step("out", None), step("route", None)]);
    assert_eq!((plan.flows[0].slo, plan.flows[0].percentile), (Some(Nanos(300_000)), Percentile::Of(99.9)));
    assert_eq!(plan.flows[1].path, [step("vlans", Some(1)), step("route", None)]);
    assert_eq!((plan.flows[1].slo, plan.flows[1].percentile), (None, Percentile::Of(99.0)));
}

#[test]
fn a_check_lists_the_parts_and_opens_nothing() {
    let closed = EXAMPLE.replace("core:   { test_port: { receives: true }", "core:   { test_port: { opens: false }");
    let checked = crate::check(&Source::new(&closed, "test.yaml", "")).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(checked.modules[1], ("fw".to_owned(), "test_pass"));
    assert_eq!(checked.ports, [("access".to_owned(), "test_port"), ("core".to_owned(), "test_port")]);
    assert_eq!(checked.flows, ["video", "rest"]);
    let refused = load(&closed).err().expect("the port cannot be opened").to_string();
    assert_eq!(refused, "test.yaml:8: ports.core.test_port.opens: there is no such device");
}

#[test]
fn settings_override_and_add_values() {
    let source = Source::new(EXAMPLE, "test.yaml", "");
    let source = source
        .set("batch=128")
        .set("buffers.out.trigger=100")
        .set("flows.0.slo=1ms")
        .set("modules.fw.test_pass={ after: 5us }");
    let plan = load_source(&source).unwrap_or_else(|problems| panic!("{problems}")).plans.remove(0);
    assert_eq!((plan.batch, plan.modules[module(&plan, "out")].trigger), (128, 100));
    assert_eq!(plan.flows[0].slo, Some(Nanos(1_000_000)));
}

#[test]
fn errors_of_settings_name_the_setting() {
    let source = Source::new(EXAMPLE, "test.yaml", "");
    let source = source
        .set("batch=0")
        .set("nonsense")
        .set("batch.x=1")
        .set("flows.9.slo=1ms")
        .set("a..b=1")
        .set("seed={a: 1, a: 2}")
        .set("buffers.fw.trigger=99");
    let problems = load_source(&source).err().expect("refused").to_string();
    insta::assert_snapshot!(problems, @r"
        --set batch=0: batch: '0' is out of range: allowed is a whole number from 1 to 256
        --set nonsense: not a setting: write `key=value`
        --set batch.x=1: 'batch' is a single value: it has no 'x'
        --set flows.9.slo=1ms: the list 'flows' has no item '9': it has 2, numbered from 0
        --set a..b=1: 'a..b' is not a key: write names with dots between
        --set seed={a: 1, a: 2}: the value '{a: 1, a: 2}' has a key twice
        ");
}

/// Regression: the error of `null` for an item of a list named neither the value nor the allowed ones.
#[test]
fn null_for_an_item_of_a_list_is_refused_with_what_is_allowed() {
    let problems = |source: Source| load_source(&source).err().expect("refused").to_string();
    for (setting, place, list) in [
        ("workers.0=null", "workers[0]", "workers"),
        ("flows.1=~", "flows[1]", "flows"),
        ("pipeline.0=null", "pipeline[0]", "pipeline"),
    ] {
        let source = Source::new(EXAMPLE, "test.yaml", "").set("workers=[{}]").set(setting);
        let expected = format!(
            "--set {setting}: {place}: null leaves out a key, but this is an item of a list: write a value, or \
             `{list}=null` to leave out the whole list"
        );
        assert_eq!(problems(source), expected);
    }
    // A key of an item can be left out, and so can the whole list.
    let source = Source::new(EXAMPLE, "test.yaml", "").set("flows.0.slo=null").set("flows.1.slo=1ms");
    let plan = load_source(&source).unwrap_or_else(|problems| panic!("{problems}")).plans.remove(0);
    assert_eq!((plan.flows[0].slo, plan.flows[1].slo), (None, Some(Nanos(1_000_000))));
    let source = Source::new(EXAMPLE, "test.yaml", "").set("flows=null");
    assert!(load_source(&source).unwrap_or_else(|problems| panic!("{problems}")).plans[0].flows.is_empty());
    // The same in the text is a missing value.
    let problems = problems(Source::new(EXAMPLE, "test.yaml", "").set("workers=[~]"));
    assert_eq!(problems, "--set workers=[~]: workers[0]: it has no value: allowed is a mapping");
}

/// Returns a pipeline whose modules are defined in random order. Each leads to later modules of another order.
fn pipeline(choices: &[(usize, Vec<usize>)]) -> String {
    let count = choices.len();
    let mut modules: Vec<(usize, String)> = Vec::new();
    let mut lines = vec!["in -> m0".to_owned()];
    let mut entered = vec![false; count];
    entered[0] = true;
    for (module, (key, targets)) in choices.iter().enumerate() {
        let later = |pick: &usize| module + 1 + pick % (count - module);
        let mut targets: Vec<usize> = targets.iter().map(later).collect();
        // Every module is reached from the one before it.
        targets.push(module + 1);
        let gates: Vec<String> = (0..targets.len()).map(|gate| format!("g{gate}")).collect();
        modules.push((*key, format!("  m{module}: {{ test_split: {{ gates: [{}] }} }}\n", gates.join(", "))));
        for (gate, target) in gates.iter().zip(targets) {
            let target = if target == count { "out".to_owned() } else { format!("m{target}") };
            lines.push(format!("m{module}[{gate}] -> {target}"));
        }
    }
    modules.sort();
    let modules: String = modules.into_iter().map(|(_, text)| text).collect();
    let lines: String = lines.into_iter().rev().map(|line| format!("  - {line}\n")).collect();
    format!(
        "ports:\n  in: {{ test_port: {{ sends: false }} }}\n  out: {{ test_port: {{ receives: false }} }}\n\
         modules:\n{modules}pipeline:\n{lines}"
    )
}

proptest! {
    #[test]
    fn random_pipelines_become_plans_in_topological_order(
        choices in prop::collection::vec((0usize..100, prop::collection::vec(0usize..100, 0..4)), 1..24),
    ) {
        let text = pipeline(&choices);
        let plan = match load(&text) {
            Ok(mut loaded) => loaded.plans.remove(0),
            Err(problems) => return Err(TestCaseError::fail(format!("{problems}\n{text}"))),
        };
        prop_assert_eq!(plan.modules.len(), choices.len());
        for (at, module) in plan.modules.iter().enumerate() {
            let number: usize = module.name[1..].parse().expect("m and a number");
            for ((_, target), pick) in module.gates.iter().zip(&choices[number].1) {
                let expected = number + 1 + pick % (choices.len() - number);
                match target {
                    Target::Module(to) => {
                        prop_assert!(*to > at);
                        prop_assert_eq!(&plan.modules[*to].name, &format!("m{expected}"));
                    }
                    Target::Port(port) => prop_assert_eq!((*port, expected), (1, choices.len())),
                    Target::Drop => prop_assert!(false, "nothing is dropped"),
                }
            }
        }
    }
}

fn two_workers(text: &str) -> Loaded {
    load(text).unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn workers_without_modules_replicate_and_named_modules_are_cut_off() {
    let text = EXAMPLE.replace("  - { core: 2, dispatch: session }", "  - {}\n  - {}\n  - { modules: [route, back] }");
    let loaded = two_workers(&text);
    assert_eq!((loaded.plans.len(), &loaded.cores[..]), (3, &[None; 3][..]));
    let placement = &loaded.plans[0].placement;
    let on = |name| placement.modules[module(&loaded.plans[0], name)].clone();
    assert_eq!([on("vlans"), on("out"), on("route"), on("back")], [vec![0, 1], vec![0, 1], vec![2], vec![2]]);
    // This kind of port has one queue, which belongs to the first of the workers that its packets go to.
    assert_eq!(placement.ports, [vec![0], vec![2]]);
    for plan in &loaded.plans {
        for (module, on) in plan.modules.iter().zip(&placement.modules) {
            assert_eq!(module.function.is_some(), on.contains(&plan.worker), "{} on {}", module.name, plan.worker);
        }
        for (port, on) in plan.ports.iter().zip(&placement.ports) {
            assert_eq!(port.open.is_some(), on.contains(&plan.worker), "{} on {}", port.name, plan.worker);
        }
    }
}

#[test]
fn a_changed_configuration_takes_over_unchanged_parts() {
    let first = two_workers(EXAMPLE);
    let conditions = crate::Conditions { frequency: forebay_units::Frequency::new(1e9), simulated: true };
    let reload =
        |text: &str| crate::prepare(&Source::new(text, "test.yaml", ""), conditions, Some(&first.made))?.open();
    let changed = EXAMPLE
        .replace("{ after: 3us }", "{ after: 4us }")
        .replace("  - { core: 2, dispatch: session }", "  - {}\n  - { modules: [route, back] }");
    let second = reload(&changed).unwrap_or_else(|problems| panic!("{problems}"));
    let from = |worker: usize, name| second.plans[worker].modules[module(&second.plans[worker], name)].from;
    assert_eq!((from(0, "vlans"), from(0, "fw"), from(0, "out"), from(1, "route")), (Some(0), None, Some(0), Some(0)));
    let fw = &second.plans[0].modules[module(&second.plans[0], "fw")];
    assert!(fw.function.is_some(), "its parameter has changed");
    assert!(second.plans[0].modules[0].function.is_none(), "it is taken over");
    // The input port of `back` moves with it.
    assert_eq!((second.plans[0].ports[0].from, second.plans[1].ports[1].from), (Some(0), Some(0)));
    assert!(second.plans[1].ports[1].open.is_none());
    // A reload refuses the same errors as a start.
    let unused = EXAMPLE.replace("  nat1:", "  idle:   { test_table: { size: 1 } }\n  nat1:");
    let error = reload(&unused).err().expect("refused").to_string();
    assert!(error.contains("no module uses the state 'idle'"), "{error}");
    // State with another parameter is not taken over, and neither are the modules that use it.
    let other = reload(&EXAMPLE.replace("size: 3", "size: 4")).unwrap_or_else(|problems| panic!("{problems}"));
    let of = |name| other.plans[0].modules[module(&other.plans[0], name)].from;
    assert_eq!((of("out"), of("back"), of("vlans")), (None, None, Some(0)));
    let fixed = EXAMPLE.replace("batch: 64", "batch: 32").replace("chunks: 1024", "chunks: 2048");
    let refused = reload(&fixed).err().expect("refused").to_string();
    assert_eq!(
        refused,
        "test.yaml:3: batch: 64 cannot become 32 while packets run: keep 64, or restart the pipeline\n\
         test.yaml:5: pool: it cannot change while packets run: leave it as it is, or restart the pipeline"
    );
}

/// Regression: a function that was taken over wrote to one word, and functions that were created after the change read
/// another.
#[test]
fn metadata_words_keep_their_numbers_over_a_change() {
    let module = "  route: { ip_lookup: { routes: ['0.0.0.0/0 1'], to: word } }\n";
    let text = |modules: &str, path: &str| {
        format!(
            "ports:\n  in: {{ generator: {{}} }}\n  out: {{ sink: }}\nmodules:\n{modules}{module}\
             pipeline:\n  - in -> {path}route -> out\n"
        )
    };
    let first = two_workers(&text("", ""));
    let meter = "  m: { meter: { srtcm: { cir: 1Mbps, cbs: 2KiB, ebs: 2KiB }, key: none, word: true } }\n";
    let conditions = crate::Conditions { frequency: forebay_units::Frequency::new(1e9), simulated: true };
    let changed = text(meter, "m[green] -> ") + "  - in2 -> m\n  - m[yellow] -> drop\n  - m[red] -> drop\n";
    let changed = changed.replace("in -> m[green] -> route", "m[green] -> route").replace("in2 -> m", "in -> m");
    let second = crate::prepare(&Source::new(changed, "test.yaml", ""), conditions, Some(&first.made))
        .and_then(crate::Prepared::open)
        .unwrap_or_else(|problems| panic!("{problems}"));
    let (old, new) = (&first.made.words, &second.made.words);
    assert_eq!(old.keys().collect::<Vec<_>>(), ["next_hop"]);
    assert_eq!(old["next_hop"], new["next_hop"]);
    assert!(new.len() == 2 && new["colour"] != new["next_hop"], "{new:?}");
}
