//! Tests with hostile texts: they are refused without panic, in bounded time.

use std::path::Path;

use proptest::prelude::*;

use crate::check_str;

fn refuse(text: &str) {
    assert!(check_str(text, Path::new("")).is_err(), "{}", &text[..text.len().min(200)]);
}

#[test]
fn large_texts_full_of_mistakes_are_refused() {
    let head = "ports: { in: { test_port: } }\n";
    let many = |one: fn(usize) -> String, count| -> String { (0..count).map(one).collect() };
    refuse(&format!("{head}modules:\n{}", many(|n| format!("  m{n}: {{ test_pas: }}\n"), 20_000)));
    refuse(&format!("{head}pipeline:\n{}", many(|n| format!("  - in{n} -> nowhere{n}\n"), 20_000)));
    let circle = many(|n| format!("  m{n}: {{ test_pass: }}\n"), 20_000);
    let lines = many(|n| format!("  - m{n} -> m{}\n", n ^ 1), 20_000);
    refuse(&format!("{head}modules:\n{circle}pipeline:\n{lines}"));
    refuse(&format!("{head}pipeline: ['{}']\n", "in -> ".repeat(200_000)));
    refuse(&format!("{head}flows:\n{}", many(|n| format!("  - {{ name: f{n}, path: [m{n}] }}\n"), 20_000)));
    refuse(&format!("{head}{}", many(|n| format!("key{n}: 1\n"), 50_000)));
}

proptest! {
    #[test]
    fn no_configuration_like_text_makes_it_panic(parts in prop::collection::vec(prop::sample::select(vec![
        "ports:", "modules:", "pipeline:", "flows:", "buffers:", "state:", "workers:", "in", "a", "test_port",
        "test_split", "test_pass", "gates", "path", "slo", "300us", ": ", "\n", "\n  ", "\n  - ", "{ ", " }", "[", "]",
        ", ", " -> ", "drop", "x", "1", "'", "&a ", "*a", "~", "<<",
    ]), 0..60)) {
        let _ = check_str(&parts.concat(), Path::new(""));
    }
}
