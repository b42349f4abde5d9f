//! Checks parameters without a configuration against their schema, with the same messages as in a configuration.

use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::Value;

use crate::conform::Rules;
use crate::document::Document;
use crate::problems::Problems;
use crate::source::Source;

/// Reads the parameters of `source`, applies its settings, and checks them against `schema`.
///
/// # Errors
/// Returns an error if the parameters cannot be read or violate the schema.
pub fn parameters(source: &Source, schema: fn(&mut SchemaGenerator) -> Schema) -> Result<Value, Problems> {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    let rules = Rules::new(schema(&mut settings.into_generator()).to_value());
    Ok(Document::read(source, &rules)?.value())
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde_json::json;

    use super::*;

    #[derive(JsonSchema)]
    #[schemars(deny_unknown_fields)]
    #[expect(dead_code, reason = "only the schema is used")]
    struct Params {
        /// The count.
        #[schemars(range(max = 9))]
        count: usize,
    }

    #[test]
    fn parameters_are_checked_against_their_schema() {
        let of = |text: &str, sets: &[&str]| {
            let source = sets.iter().fold(Source::new(text, "here", ""), |source, set| source.set(*set));
            parameters(&source, Params::json_schema).map_err(|problems| problems.to_string())
        };
        assert_eq!(of("{ count: 3 }", &[]), Ok(json!({ "count": 3 })));
        assert_eq!(of("{}", &["count=4"]), Ok(json!({ "count": 4 })));
        for (text, set, expected) in [
            ("{}", "", "here:1: `count` is missing (The count)"),
            ("{}", "count=x", "--set count=x: count: 'x' is not a whole number"),
            ("{}", "count=10", "--set count=10: count: '10' is out of range: allowed is a whole number"),
            ("{ count: 1 }", "cuont=1", "--set cuont=1: unknown key 'cuont' (did you mean 'count'?): allowed is count"),
        ] {
            let sets = [set].into_iter().filter(|set| !set.is_empty()).collect::<Vec<_>>();
            let error = of(text, &sets).expect_err(expected);
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
