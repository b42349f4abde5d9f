//! Tests that the JSON Schema in the repository is that of the registered functions and ports.

use std::path::Path;

#[test]
fn the_schema_in_the_repository_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema/forebay.schema.json");
    let stored = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let stored: serde_json::Value = serde_json::from_str(&stored).expect("JSON");
    assert!(stored == forebay_pipeline::schema(), "schema/forebay.schema.json is not current: run `make schema`");
}

#[test]
fn the_schema_is_valid() {
    assert!(jsonschema::meta::is_valid(&forebay_pipeline::schema()));
}
