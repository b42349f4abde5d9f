//! Parameters by themselves, without the configuration that they would stand in: held against their schema, in the same words.

use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::Value;

use crate::conform::Rules;
use crate::document::Document;
use crate::problem::Problems;
use crate::source::Source;

/// The parameters that `source` has, settings applied, held against what `schema` allows.
///
/// # Errors
/// What cannot be read, and what does not fit.
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
    #[expect(dead_code, reason = "of interest is its schema")]
    struct Params {
        /// How many.
        #[schemars(range(max = 9))]
        count: usize,
    }

    #[test]
    fn parameters_by_themselves_are_held_against_their_schema() {
        let of = |text: &str, sets: &[&str]| {
            let source = sets.iter().fold(Source::new(text, "here", ""), |source, set| source.set(*set));
            parameters(&source, Params::json_schema).map_err(|problems| problems.to_string())
        };
        assert_eq!(of("{ count: 3 }", &[]), Ok(json!({ "count": 3 })));
        assert_eq!(of("{}", &["count=4"]), Ok(json!({ "count": 4 })));
        for (text, set, told) in [
            ("{}", "", "here:1: `count` is missing (How many)"),
            ("{}", "count=x", "--set count=x: count: 'x' is not a whole number"),
            ("{}", "count=10", "--set count=10: count: '10' is out of range: allowed is a whole number"),
            ("{ count: 1 }", "cuont=1", "--set cuont=1: unknown key 'cuont' (did you mean 'count'?): allowed is count"),
        ] {
            let sets = [set].into_iter().filter(|set| !set.is_empty()).collect::<Vec<_>>();
            let error = of(text, &sets).expect_err(told);
            assert!(error.starts_with(told), "{error}");
        }
    }
}
