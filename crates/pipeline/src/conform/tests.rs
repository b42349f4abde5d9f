//! Compares the walk with a complete validator, for values close to and far from the allowed ones.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::words::MEANT;
use super::*;
use crate::yaml;
use crate::yaml::Node;

/// The keywords that the walk knows, and those that do not affect validity.
const KEYWORDS: &[&str] = &[
    "$defs",
    "$ref",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "oneOf",
    "pattern",
    "x-secret",
    "prefixItems",
    "properties",
    "propertyNames",
    "required",
    "type",
    "uniqueItems",
    "$schema",
    "default",
    "description",
    "examples",
    "format",
    "markdownDescription",
    "title",
];

fn node(value: &Value) -> Node {
    // JSON is YAML.
    yaml::parse(&value.to_string(), &mut Vec::new()).unwrap_or_else(|found| panic!("{}: {value}", found.fault))
}

#[test]
fn names_of_other_programs_lead_to_functions_and_ports_that_exist() {
    let functions: Vec<_> = forebay_graph::functions().into_iter().map(|it| it.name).collect();
    let ports: Vec<_> = forebay_graph::ports().into_iter().map(|it| it.name).collect();
    for (section, name, meant) in MEANT {
        let known = if *section == "ports" { &ports } else { &functions };
        assert!(!known.contains(name), "{section}: '{name}' exists, so that it needs no suggestion");
        assert!(meant.iter().all(|meant| known.contains(meant)), "{section}: {name}: {meant:?}");
    }
}

#[test]
fn violations_have_the_value_and_what_is_allowed() {
    let rules = Rules::new(json!({
        "properties": {
            "act": { "enum": ["permit", "drop"] },
            "size": { "type": "integer", "minimum": 1, "maximum": 9 },
            "kind": { "anyOf": [{ "enum": ["a", "b"] }, { "type": "null" }] },
            "name": { "type": "string", "minLength": 1, "maxLength": 3 },
            "list": { "type": "array", "minItems": 1, "maxItems": 2 },
            "wait": { "anyOf": [{ "const": "never" }, { "type": "integer", "minimum": 1, "maximum": 5 }] },
        },
        "additionalProperties": false,
    }));
    for (value, wrong, allowed) in [
        (json!({ "act": "deny" }), Some("deny"), Some("permit, drop")),
        (json!({ "size": 10 }), Some("10"), Some("a whole number from 1 to 9")),
        (json!({ "size": "x" }), Some("x"), Some("a whole number from 1 to 9")),
        (json!({ "wait": 7 }), Some("7"), Some("a whole number from 1 to 5")),
        (json!({ "wait": "ever" }), Some("ever"), Some("never, a whole number from 1 to 5")),
        (json!({ "sise": 3 }), Some("sise"), Some("act, kind, list, name, size, wait")),
        (json!({ "kind": "c" }), Some("c"), Some("a, b")),
        (json!({ "name": "abcd" }), Some("abcd"), Some("at most 3 characters")),
        (json!({ "name": "" }), Some(""), Some("at least 1 character")),
        (json!({ "list": [] }), Some("0 items"), Some("at least 1")),
        (json!({ "list": [1, 2, 3] }), Some("3 items"), Some("at most 2")),
        // Neither a missing value nor a whole mapping is quoted.
        (json!({ "size": null }), None, Some("a whole number from 1 to 9")),
        (json!({ "act": {} }), None, None),
    ] {
        let found = rules.walk(&node(&value));
        let [Wrong { fault, .. }] = &found[..] else { panic!("{value}: {} violations", found.len()) };
        assert_eq!((fault.value.as_deref(), fault.allowed.as_deref()), (wrong, allowed), "{value}: {}", fault.message);
    }
}

/// Regression: if several forms had other keys, the message named the keys of the first form only.
#[test]
fn an_unknown_key_is_reported_with_the_keys_of_all_forms() {
    let form = |name: &str| {
        let properties = json!({ name: { "type": "object" } });
        json!({ "type": "object", "properties": properties, "required": [name], "additionalProperties": false })
    };
    let rules = Rules::new(json!({ "anyOf": [{ "oneOf": [form("gtpu"), form("vxlan")] }, { "type": "null" }] }));
    let messages = |value: Value| -> Vec<String> {
        rules.walk(&node(&value)).into_iter().map(|wrong| wrong.fault.message).collect()
    };
    assert_eq!(messages(json!({ "gre": {} })), ["unknown key 'gre': allowed are gtpu, vxlan"]);
    assert_eq!(
        messages(json!({ "vxlam": {} })),
        ["unknown key 'vxlam' (did you mean 'vxlan'?): allowed are gtpu, vxlan"]
    );
    for value in [json!({}), json!({ "gtpu": {}, "vxlan": {} })] {
        let found = messages(value);
        let allowed = "allowed are a mapping with gtpu, a mapping with vxlan";
        assert!(found.len() == 1 && found[0].ends_with(allowed), "{found:?}");
    }
    // One form has a key of the value.
    assert_eq!(messages(json!({ "gtpu": {}, "x": 1 })), ["unknown key 'x': allowed is gtpu"]);
    assert_eq!(messages(json!({ "gtpu": {} })), [""; 0]);
}

/// Regression: messages used the plural for one thing, put a comma before a range, listed the keys of a mapping twice,
/// and proposed `[2]` for a list of mappings.
#[test]
fn messages_agree_with_numbers_and_repeat_nothing() {
    let rules = Rules::new(json!({
        "properties": {
            "name": { "type": "string", "minLength": 1 },
            "size": { "type": "integer", "minimum": 1, "maximum": 9 },
            "some": { "type": "array", "items": { "type": "integer" }, "minItems": 2 },
            "few": { "type": "array", "items": { "type": "object", "properties": { "core": {} } }, "maxItems": 1 },
            "one": { "type": "object", "properties": { "a": {}, "b": {} }, "minProperties": 1, "maxProperties": 1 },
            "how": { "anyOf": [{ "enum": ["a", "b"] }, { "type": "object", "properties": { "a": {}, "b": {} } }] },
        },
    }));
    for (value, expected) in [
        (json!({ "name": "" }), "'' is too short: allowed are texts of at least 1 character"),
        (json!({ "size": 1.5 }), "'1.5' is not a whole number from 1 to 9"),
        (json!({ "size": "5" }), "'5' is text: write the number without quotes, from 1 to 9"),
        (json!({ "size": "-5" }), "'-5' is text: write the number without quotes, from 1 to 9"),
        (json!({ "size": "x" }), "'x' is not a whole number: allowed are digits alone, from 1 to 9"),
        (json!({ "size": null }), "it has no value: allowed is a whole number from 1 to 9"),
        (json!({ "some": [] }), "the list is empty: at least 2 items are needed"),
        (json!({ "some": [1] }), "the list has 1 item: at least 2 items are needed"),
        (json!({ "some": 7 }), "'7' is not a list: write [7]"),
        (json!({ "few": [{}, {}] }), "the list has 2 items: at most 1 item is allowed"),
        (json!({ "few": 2 }), "'2' is not a list: each item of the list is a mapping with core"),
        (json!({ "one": {} }), "it has no key: allowed is 1 of a, b"),
        (json!({ "one": { "a": 1, "b": 1 } }), "it has 2 keys: allowed is 1 of a, b"),
        (json!({ "how": "c" }), "'c' does not fit: allowed are a, b, a mapping with one of these names"),
    ] {
        let found = rules.walk(&node(&value));
        let [Wrong { fault, .. }] = &found[..] else { panic!("{value}: {} violations", found.len()) };
        assert_eq!(fault.message, expected);
    }
}

/// Values of every kind, some of which the schemas below allow.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..300).prop_map(Value::from),
        prop::sample::select(vec![json!(0.5), json!(2.0), json!(-0.5)]),
        prop::sample::select(vec!["", "a", "ab", "abc", "300us", "permit", "drop", "x y"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let key = prop::sample::select(vec!["a", "b", "c", "x y"]).prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Schemas made of every keyword that the walk knows.
fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        prop::sample::select(vec!["null", "boolean", "number", "integer", "string", "array", "object"])
            .prop_map(|name| json!({ "type": name })),
        Just(json!({ "type": ["string", "null"] })),
        (0..3i64, 3..200i64).prop_map(|(least, most)| json!({ "type": "integer", "minimum": least, "maximum": most })),
        Just(json!({ "exclusiveMinimum": 0, "exclusiveMaximum": 100 })),
        Just(json!({ "type": "string", "minLength": 1, "maxLength": 2 })),
        Just(json!({ "type": "string", "pattern": "^[a-z]+$" })),
        Just(json!({ "const": "drop" })),
        Just(json!({ "enum": ["permit", "drop", 3, null] })),
        Just(json!(true)),
        Just(json!(false)),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            (inner.clone(), 0..2usize, 1..4usize)
                .prop_map(|(items, least, most)| { json!({ "items": items, "minItems": least, "maxItems": most }) }),
            (inner.clone(), inner.clone())
                .prop_map(|(first, rest)| json!({ "type": "array", "prefixItems": [first], "items": rest })),
            Just(json!({ "uniqueItems": true })),
            (inner.clone(), inner.clone()).prop_map(|(a, rest)| {
                json!({
                    "type": "object", "properties": { "a": a }, "additionalProperties": rest, "required": ["a"],
                })
            }),
            inner.clone().prop_map(|b| {
                json!({
                    "type": "object", "properties": { "b": b }, "additionalProperties": false, "minProperties": 1,
                    "maxProperties": 2,
                })
            }),
            inner.clone().prop_map(|each| {
                json!({ "additionalProperties": each, "propertyNames": { "pattern": "^[a-z]$" } })
            }),
            prop::collection::vec(inner.clone(), 1..4).prop_map(|forms| json!({ "anyOf": forms })),
            prop::collection::vec(inner.clone(), 1..4).prop_map(|forms| json!({ "oneOf": forms })),
            prop::collection::vec(inner.clone(), 1..3).prop_map(|parts| json!({ "allOf": parts })),
            inner.prop_map(|target| {
                json!({
                    "$defs": { "t": target }, "type": "object",
                    "additionalProperties": { "$ref": "#/$defs/t" },
                })
            }),
        ]
    })
}

/// References are found from the whole schema's root.
fn at_root(schema: &Value) -> bool {
    !schema.to_string().contains("$ref")
        || schema.get("$defs").is_some_and(|definitions| !definitions.to_string().contains("$ref"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn valid_values_are_those_of_a_complete_validator(
        schema in schema().prop_filter("references", at_root),
        values in prop::collection::vec(value(), 8),
    ) {
        let oracle = jsonschema::draft202012::new(&schema).expect("a schema");
        let rules = Rules::new(schema.clone());
        for value in values {
            let fits = rules.walk(&node(&value)).is_empty();
            prop_assert_eq!(fits, oracle.is_valid(&value), "{} against {}", value, &schema);
        }
    }
}

/// Regression: 2 and 2.0 were different values.
#[test]
fn numbers_of_one_value_are_the_same_item() {
    let rules = Rules::new(json!({ "uniqueItems": true }));
    for (list, fits) in [(json!([2, 2.0]), false), (json!([[2], [2.0]]), false), (json!([2, 2.5, "2"]), true)] {
        assert_eq!(rules.walk(&node(&list)).is_empty(), fits, "{list}");
    }
    let fault = rules.walk(&node(&json!(["a", 7, 7]))).remove(0).fault;
    assert_eq!((&*fault.message, fault.hint.as_deref()), ("'7' is listed twice: list it once", Some("list it once")));
}

#[test]
fn the_language_uses_no_keyword_that_the_walk_does_not_know() {
    fn look(schema: &Value, named: bool, unknown: &mut Vec<String>) {
        match schema {
            Value::Object(map) => {
                for (key, value) in map {
                    if !named && !KEYWORDS.contains(&key.as_str()) {
                        unknown.push(key.clone());
                    }
                    if !matches!(key.as_str(), "default" | "examples" | "const" | "enum") || named {
                        look(value, !named && matches!(key.as_str(), "properties" | "$defs"), unknown);
                    }
                }
            }
            Value::Array(list) => list.iter().for_each(|value| look(value, false, unknown)),
            _ => {}
        }
    }
    let mut unknown = Vec::new();
    look(&crate::schema(), false, &mut unknown);
    assert!(unknown.is_empty(), "{unknown:?}");
}
