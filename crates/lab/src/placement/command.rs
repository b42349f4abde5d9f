//! Builds the command that repeats an experiment.

use super::PlacementSettings;

/// Returns the command line. `DIR` stands for any folder.
pub(super) fn of(settings: &PlacementSettings) -> String {
    let mut words = vec!["forebay lab placement --out DIR".to_owned()];
    if settings.short {
        words.push("--short".to_owned());
    }
    let parts: Vec<_> = settings.only.iter().map(|part| part.name()).collect();
    if !parts.is_empty() {
        words.push(format!("--only {}", parts.join(",")));
    }
    if settings.seed != 0 {
        words.push(format!("--seed {}", settings.seed));
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::PlacementPart;

    #[test]
    fn the_command_contains_all_options() {
        assert_eq!(of(&PlacementSettings::default()), "forebay lab placement --out DIR");
        let settings =
            PlacementSettings { short: true, only: [PlacementPart::Search, PlacementPart::Gain].into(), seed: 7 };
        assert_eq!(of(&settings), "forebay lab placement --out DIR --short --only gain,search --seed 7");
    }
}
