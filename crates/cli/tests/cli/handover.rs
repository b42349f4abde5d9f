//! `forebay measure handover`: figures of each pair of cores and each level of memory.

use serde_json::Value;

use crate::forebay;

#[test]
fn pairs_of_cores_and_levels_of_memory_have_figures() {
    let measured = forebay(&["measure", "handover", "--repeats", "1", "--json"]).json();
    let pairs = measured["pairs"].as_array().expect("a list");
    if pairs.is_empty() {
        drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("skipped: there is one core\n")));
    }
    assert_eq!(measured["source"], "measured");
    for pair in pairs {
        for figure in ["packet", "clean_line", "dirty_line", "round_trip"] {
            let median = pair[figure]["median"].as_f64().unwrap_or_else(|| panic!("{figure}: {pair}"));
            assert!(median > 0.0 && median.is_finite(), "{pair}");
        }
        assert_eq!(pair["relation"] == "other_node", pair["remote_memory"] != Value::Null, "{pair}");
    }
    let levels: Vec<_> =
        measured["local"].as_array().expect("a list").iter().map(|step| step["level"].clone()).collect();
    assert_eq!(levels, ["L1", "L2", "L3", "DRAM"]);
}

#[test]
fn unusable_cores_are_refused() {
    for (cores, expected) in [
        ("100000,0", "allowed are the cores of this process"),
        ("x", "allowed are the cores of this process"),
        ("", "cores"),
    ] {
        let refused = forebay(&["measure", "handover", "--cores", cores]);
        assert_eq!(refused.code, Some(2), "{}", refused.out);
        assert!(refused.err.contains(expected), "{}", refused.err);
    }
    let first = forebay_measure::machine::allowed_cores()[0].to_string();
    let refused = forebay(&["measure", "handover", "--cores", &first]);
    assert!(refused.code == Some(2) && refused.err.contains("name two or more"), "{}", refused.err);
}

/// The word `handover` does not replace the pipeline argument, nor a file of this name.
#[test]
fn measure_without_handover_needs_a_pipeline() {
    let refused = forebay(&["measure"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("<PIPELINE>"), "{}", refused.err);
    let refused = forebay(&["measure", "./handover"]);
    assert!(refused.code == Some(2) && refused.err.contains("./handover: cannot be read"), "{}", refused.err);
    let help = forebay(&["measure", "--help"]).success();
    assert!(help.contains("handover") && help.contains("forebay measure usecase:gw"), "{help}");
}
