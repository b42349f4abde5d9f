//! Builds the command that repeats an experiment.

use super::Settings;

/// Returns the command line. `DIR` stands for any folder.
pub(super) fn of(settings: &Settings) -> String {
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
    use crate::placement::Part;

    #[test]
    fn the_command_contains_all_options() {
        assert_eq!(of(&Settings::default()), "forebay lab placement --out DIR");
        let settings = Settings { short: true, only: [Part::Search, Part::Gain].into(), seed: 7 };
        assert_eq!(of(&settings), "forebay lab placement --out DIR --short --only gain,search --seed 7");
    }
}
