//! Tests models against the simulator, and the shape of a real function's drop.

use super::*;
use crate::catalogue;
use crate::profile::Candidate;

fn profile() -> Profile {
    let (server, traffic) = (catalogue::octans_server(), catalogue::traffic());
    Profile::of(Bench { server, traffic, functions: catalogue::functions(), home: 0 }).expect("a profile")
}

fn draw(runs: usize, seed: u64) -> Draw {
    let cores = if seed == 1 { Cores::InTurn } else { Cores::All };
    Draw { runs, chains: 5, length: 4, has_competitors: false, cores, seed }
}

/// Requires a mean error of λ of at most 10 % on runs of other mixes where λ is 0.05 or more, and less than half of
/// that of the best constant. Tests the metrics `Pressure` and `Bandwidth`.
#[test]
fn models_predict_mixes_they_were_not_fitted_to() {
    let profile = profile();
    let (training, test) = (runs(&profile, draw(120, 1)), runs(&profile, draw(60, 2)));
    let (training, test) = (training.expect("runs"), test.expect("runs"));
    assert!(training.iter().chain(&test).all(|run| run.solution.converged()));
    for candidate in [Candidate::Pressure, Candidate::Bandwidth] {
        let metrics = profile.metrics(candidate).expect("every function has a demand");
        let limits = limits(&profile, &metrics);
        let sampled = |runs: &[Run]| samples(&profile, runs, &metrics, &limits).expect("levels");
        let models = Models::fit(&profile, &metrics, &limits, &sampled(&training), Method::HeldOut).expect("models");
        let errors = models.judge(&sampled(&test));
        assert!(errors.relative <= 0.1 && errors.relative < errors.of_constant / 2.0, "{errors:?}");
        assert!(errors.counted > 300 && errors.inside_interval > 0.7, "{errors:?}");
        for side in models.functions.iter().flatten() {
            let drop = side.fitted.drop;
            let sum = drop.cache + drop.memory + drop.constant;
            assert!(drop.cache >= 0.0 && drop.memory >= 0.0 && drop.constant >= 0.0 && sum <= 1.0 + 1e-9, "{drop:?}");
        }
        // A model and the problem of the search predict the same rate for a placement.
        let (mix, sample) = (&test[0].mix, sampled(&test[..1])[0]);
        let predicted = models.predict(&profile.bench, mix).expect("a placement")[0][0];
        let alone = profile.rates[sample.function][sample.side];
        assert!((predicted / (alone * (1.0 - models.drop(&sample))) - 1.0).abs() < 1e-9);
    }
}

/// The levels by the predictor's rules, computed by hand: two functions on the home domain, and one of another chain on
/// the other domain.
#[test]
fn levels_are_those_of_the_predictor() {
    let profile = profile();
    let mut metrics = vec![1.0; profile.bench.functions.len()];
    metrics[1] = 0.5;
    let limits = vec![Limits { cache: 10.0, memory: 20.0, link: 5.0 }; 2];
    let mix = vec![vec![(0, 0), (1, 0)], vec![(1, 1)]];
    let levels = profile.bench.levels(&mix, &metrics, &limits).expect("a placement");
    let near = |a: [f64; 2], b: [f64; 2]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
    assert!(near(levels[0][0], [0.2, 0.2]), "the cache: 2 of 10; memory: 4 of 20: {levels:?}");
    assert!(near(levels[0][1], [0.1, 0.15]), "{levels:?}");
    assert!(near(levels[1][0], [1.0, 0.0]), "away and first, alone on its link: {levels:?}");
}

/// Real co-runs of a flow monitor beside competitors with working sets of 0 to 12 MB. There is no run without
/// competitors, so only the shape is compared. Throughput falls with the working set over the whole range, and a
/// saturating term with its own level fits no worse than a straight line.
#[test]
fn real_co_runs_fall_with_the_competitors_working_set() {
    let path = "../../../shared/data/contention/flowmon-slomo-train.txt";
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let Ok(text) = std::fs::read_to_string(&path) else {
        // Not with `println`, whose output the test harness hides.
        let why = format!("skipped: co-runs of a flow monitor: {} does not exist", path.display());
        return drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{why}\n")));
    };
    let rows = text.lines().map(|line| {
        let cells: Vec<f64> = line.split_ascii_whitespace().map(|cell| cell.parse().expect("a number")).collect();
        (cells[8], cells[9])
    });
    let rows: Vec<(f64, f64)> = rows.collect();
    assert_eq!(rows.len(), 50);
    // The highest throughput stands for the solo run.
    let most = rows.iter().map(|row| row.1).fold(0.0, f64::max);
    let runs: Vec<_> = rows
        .iter()
        .map(|(megabytes, rate)| CoRun { cache: megabytes / 12.0, memory: 0.0, drop: 1.0 - rate / most })
        .collect();
    let linear = fit::non_negative(&runs, Shape::Linear).expect("runs");
    let saturating = fit::saturating(&runs).expect("runs");
    let mean = runs.iter().map(|run| run.drop).sum::<f64>() / 50.0;
    let of_constant = (runs.iter().map(|run| (run.drop - mean).powi(2)).sum::<f64>() / 50.0).sqrt();
    println!("λ: linear {linear:?}, saturating {saturating:?}, a constant's error {of_constant:.4}");
    assert!(linear.drop.cache > 0.05, "it falls: {linear:?}");
    assert!(linear.error < of_constant && saturating.error <= linear.error * 1.01, "{linear:?} {saturating:?}");
}
