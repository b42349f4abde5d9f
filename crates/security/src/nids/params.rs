//! The parameters of `nids`, and the compilation of its rules.
//!
//! The comments of parameters become the descriptions in `schema/`: run `make schema` after a change.

use forebay_graph::files::{MOST_RULES, read_text};
use forebay_graph::{DeclareState, Setup, SetupError, on_one_line};
use forebay_sessions::connection::SessionLookup;
use forebay_sessions::firewall::Connections;
use forebay_sessions::nat::Nat;
use forebay_tables::parameters::{LISTED, of_elements};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::alerts::Format;
use super::groups::Ruleset;
use super::parse::{self, Dialect, FlowMode};
use super::ranges::Variables;

/// Parameters of `nids`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The rules: a file's name, or a list of rules.
    pub(super) rules: Source,
    /// The values of `$NAMES` in rules, such as `HOME_NET: "[10.0.0.0/8]"`. They take precedence over variables in the
    /// file.
    #[serde(default)]
    pub(super) variables: Variables,
    /// A file to which alerts are appended, one JSON object per line.
    pub(super) alerts: Option<Alerts>,
    /// The treatment of the option `flow`, which needs the state of connections. `refuse` (the default) refuses rules
    /// with this option. `approximate` looks only at the packet itself: the word `established` matches a TCP segment
    /// with ACK and without SYN and RST. `not_established` matches a TCP segment without ACK. The words for directions
    /// match every packet. A packet that is not TCP matches every word. `{ state: NAME }` looks up the packet's
    /// session: NAME is the name of a state `connections` or `nat`, whose modules open sessions. The session of a
    /// fragment is unknown. If a rule with `drop` and `flow` matches the fragment in all other options, the fragment is
    /// dropped as `undecided`. The option `flowbits` needs `{ state: NAME }`: the bits belong to the sessions of that
    /// state.
    #[serde(default)]
    pub(super) flow: Flow,
    /// The treatment of rules that cannot be loaded, because of an unknown option or for any other reason. `refuse`
    /// (the default) refuses the file. `skip` skips these rules and lists them in the table `skipped` and in `forebay
    /// check --json`.
    #[serde(default)]
    pub(super) unknown: Unknown,
    /// With `unknown: skip`: true if rules that drop packets are skipped as well. Otherwise the file is refused if such
    /// a rule cannot be loaded.
    #[serde(default)]
    pub(super) skip_drop: bool,
    /// True if reported packets leave by a separate gate, `alerted`.
    #[serde(default)]
    pub(super) divert: bool,
    /// The counts in reports: a `summary` (the default), or also the counts of each `rule`. In both cases, the table
    /// `matches` has the counts of each rule.
    #[serde(default)]
    pub(super) count: Count,
    /// The largest number of steps of backtracking searches for a packet, 1000 to 100000000; 100000 by default. Steps
    /// are counted for expressions with look-around or back-references, for expressions to which another option is
    /// relative, and for options that read numbers. A packet that exceeds the limit is counted as `undecided`. If the
    /// search for a rule was not finished, the rule does not report the packet. If its action is `drop`, the rule drops
    /// the packet.
    #[serde(default = "steps")]
    pub(super) steps: u64,
    /// The number of pairs of a rule and an address for which `threshold` and `detection_filter` count at a time, 1 to
    /// 4194304; 65536 by default. Each pair takes 64 to 128 bytes.
    #[serde(default = "trackers")]
    pub(super) trackers: usize,
}

fn steps() -> u64 {
    100_000
}

fn trackers() -> usize {
    1 << 16
}

/// The largest `trackers`.
pub(super) const MAX_TRACKERS: usize = 1 << 22;

/// The source of the rules.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged, expecting = "expected a file's name or a list of rules")]
pub(super) enum Source {
    /// A file. Its name is relative to the configuration.
    File(String),
    /// The lines of a rule file.
    Inline(Vec<String>),
}

/// A file for alerts.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Alerts {
    /// The file's name, relative to the configuration.
    pub(super) file: String,
    /// The largest number of lines that each worker writes in a second, 1 to 1000000. Further alerts are only counted.
    /// The default is 1000. There is no default limit if time is simulated or all packets come from captures that are
    /// read with `speed: fast`.
    pub(super) rate: Option<u32>,
    /// The format of a line: `json` (the default), or `eve`, which is Suricata's EVE JSON.
    #[serde(default)]
    pub(super) format: Format,
}

/// The default `rate`, in lines a second per worker, if workers do not wait for the file.
pub(super) const RATE: u32 = 1_000;

/// The treatment of the option `flow`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged, expecting = "expected refuse, approximate or { state: NAME }")]
pub(super) enum Flow {
    /// No table of sessions is used.
    Stateless(Stateless),
    /// A table of sessions is used.
    Session(SessionState),
}

impl Default for Flow {
    fn default() -> Self {
        Self::Stateless(Stateless::Refuse)
    }
}

/// A table of sessions.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionState {
    /// The name of a state of kind `connections` or `nat`.
    state: String,
}

/// The treatment of `flow` without a table of sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Stateless {
    /// Rules with `flow` are refused.
    #[default]
    Refuse,
    /// `flow` is approximated from a single packet.
    Approximate,
}

/// The treatment of rules that cannot be loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Unknown {
    /// The file is refused.
    #[default]
    Refuse,
    /// They are skipped and listed.
    Skip,
}

/// The counts in reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Count {
    /// Packets by outcome.
    #[default]
    Summary,
    /// Also the packets of each rule.
    Rule,
}

impl Flow {
    /// Returns the setting for the parser.
    fn mode(&self) -> FlowMode {
        match self {
            Self::Stateless(Stateless::Refuse) => FlowMode::Refuse,
            Self::Stateless(Stateless::Approximate) => FlowMode::Approximate,
            Self::Session(_) => FlowMode::Session,
        }
    }

    /// Returns the table of sessions, if one is named.
    pub(super) fn lookup(&self, setup: &mut Setup<'_>) -> Result<Option<SessionLookup>, SetupError> {
        let Self::Session(SessionState { state }) = self else { return Ok(None) };
        let path = "flow.state";
        match setup.state_type(state) {
            Some(Connections::NAME) => setup.state::<Connections>(path, state)?.lookup(setup).map(Some),
            Some(Nat::NAME) => setup.state::<Nat>(path, state)?.lookup(setup).map(Some),
            _ => Err(setup.wrong_state(path, state, &[Connections::NAME, Nat::NAME])),
        }
    }
}

impl Params {
    /// Reads and compiles the rules. An error lists the first faults, each with its line.
    pub(super) fn compile(&self, setup: &Setup<'_>) -> Result<Ruleset, SetupError> {
        let refused = |error: String| match &self.rules {
            Source::Inline(lines) => of_elements("rules", lines, &error),
            Source::File(_) => SetupError::lines("rules", &error),
        };
        let (shown, bytes) = match &self.rules {
            Source::Inline(lines) => (LISTED.to_owned(), lines.join("\n").into_bytes()),
            Source::File(name) => {
                let path = setup.path("rules", name)?;
                let shown = on_one_line(&path.display().to_string());
                let bytes = read_text(&path, MOST_RULES).map_err(|error| refused(format!("{shown}: {error}")))?;
                (shown, bytes)
            }
        };
        let dialect = Dialect {
            variables: self.variables.clone(),
            flow: self.flow.mode(),
            skip: self.unknown == Unknown::Skip,
            skip_drop: self.skip_drop,
        };
        let file = parse::parse(&shown, &bytes, &dialect).map_err(refused)?;
        let mut rules = Ruleset::new(file.rules).map_err(|error| refused(format!("{shown}: {error}")))?;
        (rules.skipped, rules.categories, rules.bits) = (file.skipped, file.categories, file.bits);
        Ok(rules)
    }
}
