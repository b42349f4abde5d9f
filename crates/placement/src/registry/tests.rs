//! Tests that registries are read as they were written, and that invalid figures are refused.

use proptest::prelude::*;

use super::*;

fn drop_model(parts: [f64; 3], shape: DropShape) -> DropModel {
    let [cache, memory, constant] = parts;
    let fit = FitMethod::NonNegative;
    DropModel {
        shape,
        cache,
        memory,
        constant,
        error: 0.01,
        held_out: Some(0.012),
        interval_95: None,
        fit,
        origin: None,
    }
}

fn registry() -> Registry {
    let limits = LoadLimits { cache: 4.0, memory: 8.0, link: Some(4.0), cores: None };
    let mut registry = Registry::new("a CPU", "0.1.0", ModelOrigin::Measured, "stall_ticks_per_packet", limits);
    let drop = drop_model([0.3, 0.2, 0.05], DropShape::Saturating(0.5));
    let remote = Some(DropModel { origin: Some(ModelOrigin::Simulated), ..drop });
    let rates = SoloRates { local: 9e6, remote: Some(8e6) };
    let model = FunctionModel { rates, metric: 1.5, local: drop, remote, packets_bytes: 60, runs: 40 };
    registry.functions.insert("nat_out@0123456789abcdef".to_owned(), model);
    registry
}

/// Returns the error of a registry in which `find` is replaced by `put`.
fn wrong(find: &str, put: &str) -> String {
    let text = registry().text();
    assert!(text.contains(find), "{find} in {text}");
    Registry::parse(text.replacen(find, put, 1).as_bytes(), "models.json").expect_err("a wrong figure").to_string()
}

#[test]
fn a_wrong_figure_is_named_with_the_allowed_values() {
    let place = "models.json: function 'nat_out@0123456789abcdef': ";
    let cases = [
        ("\"metric\": 1.5", "\"metric\": 0", "metric is 0: allowed is a number from 1e-6 to 1e6"),
        ("\"local\": 9000000.0", "\"local\": -1", "rates.local is -1: allowed is a number from 1e-3 to 1e15"),
        ("\"cache\": 0.3", "\"cache\": -0.1", "local.cache is -0.1: allowed is a number from 0 to 1"),
        (
            "\"cache\": 0.3",
            "\"cache\": 0.9",
            "local.cache + memory + constant is 1.1500000000000001: allowed is a sum of at most 1",
        ),
        (
            "\"saturating\": 0.5",
            "\"saturating\": 0",
            "local.shape.saturating is 0: allowed is a number from 1e-12 to 1e12",
        ),
        (
            "\"saturating\": 0.5",
            "\"saturating\": 0.25",
            "remote.shape is Saturating(0.5): allowed is the shape of `local`",
        ),
        ("\"error\": 0.01", "\"error\": -0.01", "local.error is -0.01: allowed is 0 or more"),
    ];
    for (find, put, message) in cases {
        assert_eq!(wrong(find, put), format!("{place}{message}"));
    }
    assert_eq!(
        wrong("\"memory\": 8.0", "\"memory\": 0"),
        "models.json: limits.memory is 0: allowed is a number from 1e-6 to 1e11"
    );
    assert_eq!(wrong("\"schema\": 1", "\"schema\": 2"), "models.json: schema 2: allowed is 1");
    let unknown = wrong("\"cpu\"", "\"gpu\"");
    assert!(unknown.starts_with("models.json: not a registry of models: unknown field `gpu`"), "{unknown}");
    let huge = wrong("\"metric\": 1.5", "\"metric\": 1e999");
    assert!(huge.contains("number out of range"), "{huge}");
}

#[test]
fn parameters_of_least_mean_squares_may_be_negative() {
    let text = registry().text().replacen("\"cache\": 0.3", "\"fit\": \"lms\", \"cache\": -0.3", 1);
    let read = Registry::parse(text.as_bytes(), "models.json").expect("a registry");
    let model = read.functions.values().next().expect("a function");
    assert_eq!((model.local.cache, model.local.fit), (-0.3, FitMethod::Lms));
}

#[test]
fn only_a_registry_with_the_same_metric_can_be_added() {
    let mut all = registry();
    let mut other = registry();
    other.origin = ModelOrigin::Imported;
    let (_, model) = other.functions.pop_first().expect("a function");
    other.functions.insert("ip_lookup".to_owned(), model);
    all.add(other.clone(), "other.json").expect("the same metric");
    let added = &all.functions["ip_lookup"];
    assert_eq!(added.local.origin, Some(ModelOrigin::Imported));
    assert_eq!(added.remote.and_then(|remote| remote.origin), Some(ModelOrigin::Simulated));
    other.metric = "ticks".to_owned();
    let error = all.add(other, "other.json").expect_err("another metric").to_string();
    let expected =
        "other.json: metric is ticks: allowed is stall_ticks_per_packet, as in the registry that it is added to";
    assert_eq!(error, expected);
}

#[test]
fn a_written_file_is_private_and_is_read_unchanged() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let file = Registry::file(&folder.path().join("placement"), "Xeon® 6", "0.1.0 (ab)", 32);
    registry().write(&file).expect("written");
    assert!(file.ends_with("placement/Xeon--6_0.1.0--ab-_32.json"), "{}", file.display());
    assert_eq!(file.metadata().expect("a file").permissions().mode() & 0o777, 0o600);
    assert_eq!(Registry::read(&file).expect("a registry"), registry());
    let missing = Registry::read(&folder.path().join("none")).expect_err("no file").to_string();
    assert!(missing.ends_with("none: No such file or directory (os error 2)"), "{missing}");
}

proptest! {
    #[test]
    fn a_written_registry_is_read_unchanged(
        cuts in prop::array::uniform3(0.0_f64..0.33),
        rate in 1e3_f64..1e9,
        metric in 1e-6_f64..1e6,
        half in prop::option::of(1e-2_f64..1e2),
        link in prop::option::of(1e-3_f64..1e3),
        cores in 1_usize..500,
    ) {
        let shape = half.map_or(DropShape::Linear, DropShape::Saturating);
        let mut written = registry();
        let cores = Some(SharingCores { cache: cores, memory: 2 * cores, link: link.map(|_| cores) });
        written.limits = LoadLimits { link, cores, ..written.limits };
        for model in written.functions.values_mut() {
            model.local = drop_model(cuts, shape);
            model.remote = None;
            model.rates = SoloRates { local: rate, remote: None };
            model.metric = metric;
        }
        let read = Registry::parse(written.text().as_bytes(), "models.json").expect("a registry");
        // Decimal fractions may change in the last bit when they are parsed again.
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-12 * a.abs();
        for (a, b) in written.functions.values().zip(read.functions.values()) {
            prop_assert!(near(a.rates.local, b.rates.local) && near(a.metric, b.metric));
            prop_assert!(near(a.local.cache, b.local.cache) && near(a.local.memory, b.local.memory));
        }
        prop_assert_eq!(written.limits.cores, read.limits.cores);
    }
}
