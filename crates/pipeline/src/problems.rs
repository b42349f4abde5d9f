//! The error of a configuration: all of its faults, with places as text and without secrets.

use std::path::Path;

use forebay_graph::secret::without_keys;
use forebay_protocol::check::Fault;
use forebay_protocol::event::on_one_line;

use crate::faults::FaultCollector;
use crate::located::{LocatedFault, SourceLocation};
use crate::secrets::{SecretWords, shown_setting};

/// All faults of a configuration, in the order of its lines. There is at least one. Displayed with one line for each
/// fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct Problems {
    /// The faults.
    pub faults: Vec<Fault>,
}

impl Problems {
    /// Returns the faults with the name of the configuration as their place, because the configuration has no text.
    pub(crate) fn without_text(self, file: &str) -> Self {
        let of_whole = |fault: Fault| Fault { place: shown_file(file), line: None, column: None, ..fault };
        Self { faults: self.faults.into_iter().map(of_whole).collect() }
    }
}

impl SourceLocation {
    /// Returns the place for messages. `file` is the name of the file as messages show it, and `sets` are the settings.
    pub(crate) fn shown(self, file: &str, sets: &[String]) -> String {
        match self {
            Self::Set(number) => {
                format!("--set {}", sets.get(number).map(|set| shown_setting(set)).unwrap_or_default())
            }
            Self::Line(line, _) => format!("{file}:{line}"),
        }
    }
}

impl FaultCollector {
    /// Returns the faults as an error, in order, each once; `Ok` if there are none. `file` is the name of the
    /// configuration with the text `text` and the settings `sets`. Words that may be secrets are removed from the
    /// messages. Every fault must go through this function before it is shown.
    pub(crate) fn finish(self, file: &str, text: &str, sets: &[String]) -> Result<(), Problems> {
        if self.is_empty() {
            return Ok(());
        }
        let secret = SecretWords::of(text, sets);
        let file = shown_file(file);
        let show = |LocatedFault { place, fault }: LocatedFault| {
            let (line, column) = match place {
                SourceLocation::Line(line, column) => (Some(line), Some(column)),
                SourceLocation::Set(_) => (None, None),
            };
            let fault = fault.map_texts(|text| secret.remove(text));
            Fault { place: place.shown(&file, sets), line, column, ..fault }
        };
        Err(Problems { faults: self.sorted().into_iter().map(show).collect() })
    }
}

/// Returns the name of a configuration file as messages show it. If no file has this name, parts of the name are
/// hidden, because the name may be a key or a setting in the wrong place. Control characters are escaped.
#[must_use]
pub fn shown_file(file: &str) -> String {
    let shown = match file {
        file if Path::new(file).exists() => file.to_owned(),
        file if file.contains('=') => shown_setting(file),
        file => without_keys(file),
    };
    on_one_line(&shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_come_in_the_order_of_lines_each_once() {
        let mut faults = FaultCollector::default();
        faults.add(SourceLocation::Line(7, 1), "later");
        faults.add(SourceLocation::Line(2, 5), "first");
        faults.add(SourceLocation::Line(7, 1), "later");
        faults.add(SourceLocation::Set(0), "set");
        let problems = faults.finish("a.yaml", "", &["batch=0".to_owned()]).expect_err("problems");
        assert_eq!(problems.to_string(), "--set batch=0: set\na.yaml:2: first\na.yaml:7: later");
    }

    #[test]
    fn each_problem_has_one_line() {
        let mut faults = FaultCollector::default();
        faults.add(SourceLocation::Line(7, 1), "no 'a\nb'");
        faults.add(SourceLocation::Set(0), "no 'c\td'");
        let problems = faults.finish("x\ny.yaml", "", &["e\nf=0".to_owned()]).expect_err("problems");
        let expected = "--set e\\u000af=0: no 'c\\u0009d'\nx\\u000ay.yaml:7: no 'a\\u000ab'";
        assert_eq!(problems.to_string(), expected);
    }
}
