//! The gate: a build's instructions against a baseline's, part by part, and why one has become dearer.
//!
//! Counts have no noise, so that any change is real; the limit says which are worth stopping for. A module's instructions
//! are so many a call and so many a packet. Where calls have become smaller, the present build is counted once more with
//! other batches: the line through the two counts says what its code costs at the batches of the baseline, and the rest is
//! the batches' doing.

mod run;

use std::collections::HashMap;

use serde::Serialize;

use crate::baseline::{Case, Part};

pub use run::{Answer, Changes, GROUPS, Gate, GateError, Progress, ask, changes, select, updated};

/// Why a figure changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Other instructions at equal batches.
    Code,
    /// Other batches: what a call costs falls on fewer packets, or on more.
    Batches,
    /// Both have changed, and the present build's batches cannot be changed to tell them apart.
    CodeOrBatches,
    /// Another part of the packets comes to a module.
    Traffic,
    /// A module that was not there.
    Appeared,
    /// A module that is there no more, or gets no packet.
    Vanished,
}

impl Cause {
    /// In words: what made it dearer, or with `less`, cheaper.
    #[must_use]
    pub fn told(self, less: bool) -> &'static str {
        match (self, less) {
            (Self::Code, false) => "more code",
            (Self::Code, true) => "less code",
            (Self::Batches, false) => "smaller batches",
            (Self::Batches, true) => "larger batches",
            (Self::CodeOrBatches, false) => "more code or smaller batches",
            (Self::CodeOrBatches, true) => "less code or larger batches",
            (Self::Traffic, false) => "more packets come to modules",
            (Self::Traffic, true) => "fewer packets come to modules",
            (Self::Appeared, _) => "new module",
            (Self::Vanished, _) => "module gone",
        }
    }
}

/// How much of a change one cause makes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Why {
    /// What.
    pub cause: Cause,
    /// Instructions per packet.
    pub ipp: f64,
}

/// What a change means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// By more than the limit: the answer is no.
    Dearer,
    /// A module that the baseline does not have: the answer is no, until it does.
    Appeared,
    /// By no more than the limit, either way.
    Within,
    /// By more than the limit, or it is gone: the baseline can be lowered.
    Cheaper,
}

/// A figure that has changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The module, `(residue)` or `(all)`.
    pub part: String,
    /// The module's function.
    pub function: String,
    /// What it means.
    pub verdict: Verdict,
    /// Instructions per packet of the baseline.
    pub before: Option<f64>,
    /// And now.
    pub now: Option<f64>,
    /// The change as a share of what was.
    pub change: Option<f64>,
    /// Packets per call of the baseline, and now.
    pub packets_per_call: [Option<f64>; 2],
    /// Why, most important first.
    pub why: Vec<Why>,
    /// Of `(all)`: where most of it comes from, instructions per packet that entered.
    pub mostly: Vec<(String, f64)>,
}

impl Finding {
    /// Whether the gate stays shut for it.
    #[must_use]
    pub fn fails(&self) -> bool {
        matches!(self.verdict, Verdict::Dearer | Verdict::Appeared)
    }
}

/// What became of a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The pipeline with its settings.
    pub case: String,
    /// All parts whose figure changed: modules in their order, the residue, the whole.
    pub findings: Vec<Finding>,
    /// How many parts were compared.
    pub parts: usize,
}

impl Compared {
    /// Whether the gate stays shut for it.
    #[must_use]
    pub fn fails(&self) -> bool {
        self.findings.iter().any(Finding::fails)
    }
}

/// How near a count must come to the batches of before, as a share of calls per packet that comes to a module.
const REACHED: f64 = 0.05;

/// Compares a pipeline with what it was. Where [`wants`] says so, `other` is the present build's count with other batches.
#[must_use]
pub fn compare(before: &Case, now: &Case, other: Option<&Case>, limit: f64) -> Compared {
    let was: HashMap<&str, &Part> = before.modules.iter().map(|part| (part.name.as_str(), part)).collect();
    let is: HashMap<&str, &Part> = now.modules.iter().map(|part| (part.name.as_str(), part)).collect();
    let others: HashMap<&str, &Part> =
        other.into_iter().flat_map(|case| &case.modules).map(|part| (part.name.as_str(), part)).collect();
    let mut findings = Vec::new();
    // Of the whole: by cause and by part, per packet that entered.
    let mut causes: HashMap<Cause, f64> = HashMap::new();
    let mut places: Vec<(String, f64)> = Vec::new();
    let of_entered = |part: &Part, case: &Case| part.packets as f64 / case.whole.packets.max(1) as f64;
    for part in &now.modules {
        let share = of_entered(part, now);
        let old = was.get(part.name.as_str()).copied();
        let ipp = part.per_packet();
        match (old, old.and_then(Part::per_packet), ipp) {
            (Some(old), Some(was), Some(is)) => {
                let why = split(old, part, others.get(part.name.as_str()).copied());
                why.iter().for_each(|why| *causes.entry(why.cause).or_default() += share * why.ipp);
                let traffic = (share - of_entered(old, before)) * was;
                *causes.entry(Cause::Traffic).or_default() += traffic;
                places.push((part.name.clone(), share * (is - was) + traffic));
                findings.extend(finding(old, part, why, limit));
            }
            (None, _, _) => {
                *causes.entry(Cause::Appeared).or_default() += share * ipp.unwrap_or(0.0);
                places.push((part.name.clone(), share * ipp.unwrap_or(0.0)));
                findings.push(alone(part, Verdict::Appeared, Cause::Appeared));
            }
            (Some(_), None, Some(is)) => {
                *causes.entry(Cause::Traffic).or_default() += share * is;
                places.push((part.name.clone(), share * is));
                findings.push(alone(part, Verdict::Within, Cause::Traffic));
            }
            // Below, with those that are gone.
            (Some(_), _, None) => {}
        }
    }
    for part in &before.modules {
        let unused = is.get(part.name.as_str()).is_none_or(|now| now.packets == 0);
        if let Some(was) = part.per_packet().filter(|_| unused) {
            let gone = of_entered(part, before) * was;
            *causes.entry(Cause::Vanished).or_default() -= gone;
            places.push((part.name.clone(), -gone));
            findings.push(alone(part, Verdict::Cheaper, Cause::Vanished));
        }
    }
    let modules = if causes.contains_key(&Cause::Appeared) {
        Cause::Appeared
    } else if causes.contains_key(&Cause::Vanished) {
        Cause::Vanished
    } else {
        Cause::Traffic
    };
    let why = split_residue(before, now, other, modules);
    why.iter().for_each(|why| *causes.entry(why.cause).or_default() += why.ipp);
    if let (Some(was), Some(is)) = (before.residue.per_packet(), now.residue.per_packet()) {
        places.push((now.residue.name.clone(), is - was));
    }
    findings.extend(finding(&before.residue, &now.residue, why, limit));
    let why = causes.into_iter().map(|(cause, ipp)| Why { cause, ipp }).collect();
    if let Some(mut whole) = finding(&before.whole, &now.whole, why, limit) {
        whole.mostly = largest(places, whole.now.zip(whole.before).map_or(0.0, |(now, before)| now - before));
        findings.push(whole);
    }
    Compared { case: now.name(), findings, parts: now.parts().count() }
}

/// Whether a change is beyond the limit with other batches than before: by which factor batches have become smaller where
/// that is most.
#[must_use]
pub fn wants(before: &Case, now: &Case, limit: f64) -> Option<f64> {
    let compared = compare(before, now, None, limit);
    let beyond = compared.findings.iter().filter(|finding| finding.verdict != Verdict::Within);
    let factors = beyond.filter_map(|finding| {
        let [was, is] = finding.packets_per_call;
        was.zip(is).map(|(was, is)| was / is).filter(|factor| (factor - 1.0).abs() > 1e-6)
    });
    factors.max_by(|a, b| a.ln().abs().total_cmp(&b.ln().abs()))
}

/// Tells code from batches: `other` is the present code with other batches.
fn split(before: &Part, now: &Part, other: Option<&Part>) -> Vec<Why> {
    let figures = |part: &Part| part.per_packet().zip(part.calls_per_packet());
    let (Some((was, calls_before)), Some((is, calls_now))) = (figures(before), figures(now)) else { return Vec::new() };
    let same = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
    if same(calls_before, calls_now) {
        return vec![Why { cause: Cause::Code, ipp: is - was }];
    }
    match other.and_then(figures).filter(|(_, calls)| !same(*calls, calls_now)) {
        Some((ipp, calls)) => {
            let per_call = (is - ipp) / (calls_now - calls);
            let batches = per_call * (calls_now - calls_before);
            vec![Why { cause: Cause::Code, ipp: is - was - batches }, Why { cause: Cause::Batches, ipp: batches }]
        }
        None => vec![Why { cause: Cause::CodeOrBatches, ipp: is - was }],
    }
}

/// The same for the residue, whose calls are those of all modules: there are more of them where modules' batches are smaller,
/// and where packets visit more modules, which is the doing of `modules`.
fn split_residue(before: &Case, now: &Case, other: Option<&Case>, modules: Cause) -> Vec<Why> {
    let mut why = split(&before.residue, &now.residue, other.map(|case| &case.residue));
    let visits = |case: &Case| {
        let visits: f64 = case.modules.iter().map(|module| module.packets as f64).sum();
        visits / case.whole.packets.max(1) as f64
    };
    // Its calls are of many kinds: the line through two counts tells code from batches only where one has those of before.
    let of_visit = |case: &Case| case.residue.calls_per_packet().unwrap_or(0.0) / visits(case);
    let reached = [Some(now), other].into_iter().flatten();
    let reached = reached.into_iter().any(|case| (of_visit(case) / of_visit(before) - 1.0).abs() <= REACHED);
    if why.iter().any(|why| why.cause == Cause::Batches) && !reached {
        let ipp = why.iter().map(|why| why.ipp).sum();
        why = vec![Why { cause: Cause::CodeOrBatches, ipp }];
    }
    let calls = [before, now].map(|case| case.residue.calls_per_packet().unwrap_or(0.0));
    let (were, are) = (visits(before), visits(now));
    let Some(batches) = why.iter_mut().find(|why| why.cause == Cause::Batches) else { return why };
    if were > 0.0 && (were - are).abs() > 1e-9 * were && calls[1] != calls[0] {
        // More visits in calls as large as they were; what is left is for calls that are not.
        let part = batches.ipp * (are - were) * (calls[0] / were) / (calls[1] - calls[0]);
        batches.ipp -= part;
        why.push(Why { cause: modules, ipp: part });
    }
    why
}

/// Instructions per packet that are within any limit but 0: the compiler makes as much of the same code in another folder.
pub const LEAST: f64 = 0.05;

/// What a part's change comes to; nothing where there is none.
fn finding(before: &Part, now: &Part, mut why: Vec<Why>, limit: f64) -> Option<Finding> {
    let (was, is) = (before.per_packet()?, now.per_packet()?);
    let delta = is - was;
    if before.instructions == now.instructions && before.packets == now.packets {
        return None;
    }
    let most = if limit > 0.0 { LEAST.max(limit * was) } else { 0.0 };
    let verdict = match delta {
        _ if delta > most => Verdict::Dearer,
        _ if -delta > most => Verdict::Cheaper,
        _ => Verdict::Within,
    };
    // What is a hundredth of it is not why.
    why.retain(|why| why.ipp.abs() > delta.abs() / 100.0);
    why.sort_by(|a, b| (b.ipp * delta).total_cmp(&(a.ipp * delta)));
    Some(Finding {
        part: now.name.clone(),
        function: now.function.clone(),
        verdict,
        before: Some(was),
        now: Some(is),
        change: (was > 0.0).then(|| delta / was),
        packets_per_call: [before, now]
            .map(|part| part.calls_per_packet().filter(|calls| *calls > 0.0).map(f64::recip)),
        why,
        mostly: Vec::new(),
    })
}

/// A module that is on one side only.
fn alone(part: &Part, verdict: Verdict, cause: Cause) -> Finding {
    let (ipp, gone) = (part.per_packet(), cause == Cause::Vanished);
    let packets = part.calls_per_packet().filter(|calls| *calls > 0.0).map(f64::recip);
    Finding {
        part: part.name.clone(),
        function: part.function.clone(),
        verdict,
        before: ipp.filter(|_| gone),
        now: ipp.filter(|_| !gone),
        change: None,
        packets_per_call: if gone { [packets, None] } else { [None, packets] },
        why: ipp.map(|ipp| Why { cause, ipp: if gone { -ipp } else { ipp } }).into_iter().collect(),
        mostly: Vec::new(),
    }
}

/// The parts that a change mostly comes from: up to three, together most of it.
fn largest(mut places: Vec<(String, f64)>, delta: f64) -> Vec<(String, f64)> {
    places.retain(|(_, ipp)| ipp * delta > 0.0);
    places.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
    let mut told = 0.0;
    places.truncate(3);
    places.retain(|(_, ipp)| {
        let more = told < 0.8 * delta.abs();
        told += ipp.abs();
        more
    });
    places
}

#[cfg(test)]
mod tests;
