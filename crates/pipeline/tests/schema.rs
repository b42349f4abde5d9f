//! The checked-in JSON Schema is that of the functions and ports that there are.

use std::path::Path;

#[test]
fn the_schema_that_is_checked_in_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema/forebay.schema.json");
    let stored = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let stored: serde_json::Value = serde_json::from_str(&stored).expect("JSON");
    assert!(stored == forebay_pipeline::schema(), "schema/forebay.schema.json is not current: run `make schema`");
}

#[test]
fn the_schema_is_one() {
    assert!(jsonschema::meta::is_valid(&forebay_pipeline::schema()));
}
