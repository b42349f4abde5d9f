//! What calls of modules cost: as was known before, put right by what the running modules take.

use forebay_graph::Snapshot;
use forebay_models::batching::Line;
use forebay_models::online::Online;

/// What a function's calls cost, as was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profiled {
    /// Seconds a call and a packet.
    pub line: Line,
    /// The part of a call that the engine's stopwatch does not count.
    pub dispatch: f64,
}

/// What is assumed of a function that nobody has measured.
const ASSUMED: Profiled = Profiled { line: Line { fixed: 40e-9, each: 10e-9 }, dispatch: 5e-9 };

/// Each module's cost.
#[derive(Clone, Debug)]
pub enum Costs {
    /// By module: learnt from what is timed.
    Learnt(Vec<Online>),
    /// By module: known for sure.
    Known(Vec<Line>),
    /// As snapshots say: of what was recorded.
    Recorded,
}

impl Costs {
    /// To be learnt, from what was measured before, by module; `None` where it was not.
    #[must_use]
    pub fn learnt(profiles: impl IntoIterator<Item = Option<Profiled>>) -> Self {
        let online = |profile: Option<Profiled>| {
            let Profiled { line, dispatch } = profile.unwrap_or(ASSUMED);
            Online::new(line, dispatch)
        };
        Self::Learnt(profiles.into_iter().map(online).collect())
    }

    /// Learns from a period, and writes what is known into its snapshot.
    pub fn account(&mut self, snapshot: &mut Snapshot) {
        match self {
            Self::Learnt(all) => {
                for (online, module) in all.iter_mut().zip(&mut snapshot.modules) {
                    let (calls, packets, seconds) = module.timed;
                    online.note(calls, packets, seconds);
                    let Line { fixed, each } = online.line();
                    module.cost_s = (fixed, each);
                }
            }
            Self::Known(lines) => {
                for (line, module) in lines.iter().zip(&mut snapshot.modules) {
                    module.cost_s = (line.fixed, line.each);
                }
            }
            Self::Recorded => {}
        }
    }
}
