//! The parameters of `nids`, and the rules that they name.

use forebay_graph::files::{MOST_RULES, read_text};
use forebay_graph::{DeclareState, Setup, SetupError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::alerts::Format;
use super::groups::Ruleset;
use super::parse::{self, Dialect, FlowMode};
use super::ranges::Variables;
use crate::connection::SessionLookup;
use crate::firewall::Connections;
use crate::nat::Nat;
use crate::parameters::{LISTED, of_elements};

/// Parameters of `nids`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The rules: a file's name, or a list of rules.
    pub(super) rules: Source,
    /// What `$NAMES` in rules stand for, such as `HOME_NET: "[10.0.0.0/8]"`; before those that the file has.
    #[serde(default)]
    pub(super) variables: Variables,
    /// A file for alerts, a JSON object a line, after what is in it.
    pub(super) alerts: Option<Alerts>,
    /// The option `flow`, which needs the state of connections. With `refuse` (the default) rules with it are refused.
    /// `approximate` looks at one packet: `established` matches a TCP segment with ACK and without SYN and RST,
    /// `not_established` one without ACK, directions match every packet, and packets of other protocols match all.
    /// `{ state: NAME }` looks up the packet's session: NAME is that of a state `connections` or `nat`, whose modules
    /// open sessions. A fragment does not show its session: a rule with `drop` and `flow` that matches it in all else
    /// drops it as `undecided`. The option `flowbits` needs `{ state: NAME }`: the bits belong to the sessions of that
    /// state.
    #[serde(default)]
    pub(super) flow: Flow,
    /// Rules that cannot be loaded, for an option that is not known or any other reason: the file is refused
    /// (`refuse`, the default), or they are skipped (`skip`) and listed by the table `skipped` and
    /// `forebay check --json`.
    #[serde(default)]
    pub(super) unknown: Unknown,
    /// With `unknown: skip`, whether rules that drop packets are skipped as well; else such a rule refuses the file.
    #[serde(default)]
    pub(super) skip_drop: bool,
    /// Whether reported packets leave by a gate of their own, `alerted`.
    #[serde(default)]
    pub(super) divert: bool,
    /// Which counts reports have: a `summary` (the default), or those of each `rule`, too. The table `matches` has
    /// them.
    #[serde(default)]
    pub(super) count: Count,
    /// How many steps searches that go back may take for a packet, 1000 to 100000000; 100000 by default. They are
    /// those of expressions with look-around, back-references or an option relative to them, and of options that read
    /// numbers. A packet that takes more is counted as `undecided`: rules whose search was not finished drop it if
    /// they drop, and do not report it.
    #[serde(default = "steps")]
    pub(super) steps: u64,
    /// For how many pairs of a rule and an address `threshold` and `detection_filter` count at a time, 1 to 4194304;
    /// 65536 by default. Each takes 64 to 128 bytes.
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
pub(super) const MOST_TRACKERS: usize = 1 << 22;

/// Where rules come from.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged, expecting = "rules are a file's name or a list of rules")]
pub(super) enum Source {
    /// A file, relative to the configuration.
    File(String),
    /// The lines of such a file.
    Inline(Vec<String>),
}

/// A file for alerts.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Alerts {
    /// Its name, relative to the configuration.
    pub(super) file: String,
    /// How many lines a second each worker writes at most, 1 to 1000000. Further ones are counted only. The default is
    /// 1000, and no limit where time is simulated or all packets come from captures that are read with `speed: fast`.
    pub(super) rate: Option<u32>,
    /// The form of a line: `json` (the default), or `eve`, that of Suricata's EVE JSON.
    #[serde(default)]
    pub(super) format: Format,
}

/// The default `rate`, in lines a second, where packets do not wait.
pub(super) const RATE: u32 = 1_000;

/// What becomes of `flow`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged, expecting = "flow is refuse, approximate or { state: NAME }")]
pub(super) enum Flow {
    /// No table is asked.
    Stateless(Stateless),
    /// A table of sessions is asked.
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

/// The treatment of `flow` where no table is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Stateless {
    /// Rules with it are refused.
    #[default]
    Refuse,
    /// It is taken for what one packet shows.
    Approximate,
}

/// What becomes of rules that cannot be loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Unknown {
    /// The file is refused.
    #[default]
    Refuse,
    /// They are skipped and listed.
    Skip,
}

/// Which counts reports have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Count {
    /// Packets by what became of them.
    #[default]
    Summary,
    /// Those of each rule, too.
    Rule,
}

impl Flow {
    fn mode(&self) -> FlowMode {
        match self {
            Self::Stateless(Stateless::Refuse) => FlowMode::Refuse,
            Self::Stateless(Stateless::Approximate) => FlowMode::Approximate,
            Self::Session(_) => FlowMode::Session,
        }
    }

    /// The table of sessions that rules ask, where one is named.
    pub(super) fn lookup(&self, setup: &mut Setup<'_>) -> Result<Option<SessionLookup>, SetupError> {
        let Self::Session(SessionState { state }) = self else { return Ok(None) };
        let path = "flow.state";
        match setup.state_kind(state) {
            None | Some(Connections::NAME) => setup.state::<Connections>(path, state)?.lookup(setup).map(Some),
            Some(Nat::NAME) => setup.state::<Nat>(path, state)?.lookup(setup).map(Some),
            Some(kind) => {
                let message = format!("the state '{state}' is a '{kind}': allowed are 'connections' and 'nat'");
                Err(SetupError::at(path, message))
            }
        }
    }
}

impl Params {
    pub(super) fn compile(&self, setup: &Setup<'_>) -> Result<Ruleset, SetupError> {
        let refused = |error: String| match &self.rules {
            Source::Inline(lines) => of_elements("rules", lines, &error),
            Source::File(_) => SetupError::at("rules", error),
        };
        let (shown, bytes) = match &self.rules {
            Source::Inline(lines) => (LISTED.to_owned(), lines.join("\n").into_bytes()),
            Source::File(name) => {
                let path = setup.path(name);
                let shown = path.display().to_string();
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
