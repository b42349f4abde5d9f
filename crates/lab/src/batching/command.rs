//! Builds the command that repeats an experiment. It contains all options of the experiment except the output folder.

use forebay_units::Nanos;

use super::BatchingSettings;

/// Returns the command line.
pub(super) fn line(settings: &BatchingSettings) -> String {
    let mut words: Vec<String> = ["forebay", "lab", "batching", "--out", "DIR"].map(str::to_owned).to_vec();
    if settings.simulated {
        words.push("--virtual".to_owned());
    }
    if settings.short {
        words.push("--short".to_owned());
    }
    let parts: Vec<_> = settings.only.iter().map(|part| part.name()).collect();
    let options = [
        ("--only", (!parts.is_empty()).then(|| parts.join(","))),
        ("--period", settings.period.map(time)),
        ("--duration", settings.duration.map(time)),
        ("--runs", settings.runs.map(|runs| runs.to_string())),
        ("--usecase", (!settings.usecases.is_empty()).then(|| quoted(&settings.usecases.join(",")))),
        ("--captures", settings.captures.as_ref().map(|folder| quoted(&folder.to_string_lossy()))),
    ];
    words.extend(options.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value?])).flatten());
    words.join(" ")
}

/// Formats a time in the largest unit that gives a whole number.
fn time(time: Nanos) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let unit = units.iter().find(|(nanos, _)| time.0.is_multiple_of(*nanos));
    unit.map_or_else(|| format!("{}ns", time.0), |(nanos, name)| format!("{}{name}", time.0 / nanos))
}

/// Quotes a text for a shell.
fn quoted(text: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "/._-+,:=@%".contains(letter);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batching::BatchingPart;

    #[test]
    fn the_command_contains_all_options() {
        let mut settings = BatchingSettings {
            simulated: true,
            short: false,
            only: [BatchingPart::Open, BatchingPart::Captures].into(),
            period: Some(Nanos(1_500_000)),
            duration: Some(Nanos(2_000_000_000)),
            runs: Some(3),
            captures: Some("it's here".into()),
            usecases: vec!["vrf 16 4".to_owned(), "gw".to_owned()],
        };
        let wanted = "forebay lab batching --out DIR --virtual --only open,captures --period 1500us --duration 2s \
                      --runs 3 --usecase 'vrf 16 4,gw' --captures 'it'\\''s here'";
        assert_eq!(line(&settings), wanted);
        settings = BatchingSettings {
            simulated: false,
            short: true,
            captures: None,
            only: [].into(),
            usecases: Vec::new(),
            ..settings
        };
        settings = BatchingSettings { period: None, duration: None, runs: None, ..settings };
        assert_eq!(line(&settings), "forebay lab batching --out DIR --short");
    }
}
