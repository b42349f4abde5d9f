//! The gate: compares the instruction counts of a build with a baseline, part by part, and finds the cause of
//! increases.
//!
//! Counts have no noise, so every change is real; the limit decides which changes fail the gate. A module's
//! instructions are a fixed number per call and a number per packet. If the size of the batches has changed, the
//! present build is counted once more with other batches. The line through its two counts gives the cost of the present
//! code at the baseline's batches. The rest of the change is the effect of the batches.

mod run;

use std::collections::HashMap;

use serde::Serialize;

use crate::baseline::{Case, PartCounts};

pub use run::{Changes, CountProgress, GROUPS, Gate, GateError, GateReport, changes, requests_for, select, updated};

/// The cause of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GateCause {
    /// Other instructions with equal batches.
    Code,
    /// Other batch sizes: the cost of a call is shared by fewer or more packets.
    Batches,
    /// Code and batches have changed. The two effects cannot be separated, because the present build's batches cannot
    /// be changed.
    CodeOrBatches,
    /// A module gets another share of the packets than before.
    Traffic,
    /// The module is new.
    Appeared,
    /// The module does not exist any more, or gets no packets.
    Vanished,
}

impl GateCause {
    /// Returns the cause in words: of an increase, or with `less`, of a decrease.
    #[must_use]
    pub fn describe(self, less: bool) -> &'static str {
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

/// The part of a change with one cause.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CauseShare {
    /// The cause.
    pub cause: GateCause,
    /// The change that this cause explains, in instructions per packet. Negative for a decrease.
    pub ipp: f64,
}

/// The result for a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GateVerdict {
    /// Increased by more than the limit: the gate fails.
    Increased,
    /// The baseline does not have the module: the gate fails until the baseline has it.
    Appeared,
    /// Changed by at most the limit.
    Within,
    /// Decreased by more than the limit, or removed: the baseline can be lowered.
    Decreased,
}

/// A figure that has changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The name of the module or port, `(residue)` or `(all)`.
    pub part: String,
    /// The module's function or the port's type; empty for `(residue)` and `(all)`.
    pub function: String,
    /// The result.
    pub verdict: GateVerdict,
    /// Instructions per packet of the baseline. `None` if the baseline does not have the module, or has no packets in
    /// it.
    pub before: Option<f64>,
    /// Instructions per packet of the present build. `None` if the present build does not have the module, or has no
    /// packets in it.
    pub now: Option<f64>,
    /// The relative change. `None` if only one side has the module, or if the baseline has 0 instructions per packet.
    pub change: Option<f64>,
    /// Packets per call of the baseline and of the present build.
    pub packets_per_call: [Option<f64>; 2],
    /// The causes, the most important first. For `(all)`, in instructions per packet that entered.
    pub why: Vec<CauseShare>,
    /// For `(all)`: the parts that contribute most, in instructions per packet that entered.
    pub mostly: Vec<(String, f64)>,
}

impl Finding {
    /// True if the gate fails because of this finding.
    #[must_use]
    pub fn fails(&self) -> bool {
        matches!(self.verdict, GateVerdict::Increased | GateVerdict::Appeared)
    }
}

/// The comparison of a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The pipeline with its settings.
    pub case: String,
    /// All parts whose figure changed: modules in the order of the present count, modules that are removed or get no
    /// packets any more, the residue, the whole.
    pub findings: Vec<Finding>,
    /// The number of compared parts.
    pub parts: usize,
}

impl Compared {
    /// True if the gate fails because of this pipeline.
    #[must_use]
    pub fn fails(&self) -> bool {
        self.findings.iter().any(Finding::fails)
    }
}

/// A count has the batches of the baseline if its calls per visit differ from the baseline's by at most this share. A
/// visit is one packet in one module.
const REACHED: f64 = 0.05;

/// Compares the present counts of a pipeline with the baseline. `other` is the present build's count with other
/// batches, if [`wants`] requests one. `limit` is the share by which instructions per packet may increase.
#[must_use]
pub fn compare(before: &Case, now: &Case, other: Option<&Case>, limit: f64) -> Compared {
    let was: HashMap<&str, &PartCounts> = before.modules.iter().map(|part| (part.name.as_str(), part)).collect();
    let is: HashMap<&str, &PartCounts> = now.modules.iter().map(|part| (part.name.as_str(), part)).collect();
    let others: HashMap<&str, &PartCounts> =
        other.into_iter().flat_map(|case| &case.modules).map(|part| (part.name.as_str(), part)).collect();
    let mut findings = Vec::new();
    // For the whole: changes by cause and by part, per packet that entered.
    let mut causes: HashMap<GateCause, f64> = HashMap::new();
    let mut parts: Vec<(String, f64)> = Vec::new();
    let of_entered = |part: &PartCounts, case: &Case| part.packets as f64 / case.whole.packets.max(1) as f64;
    for part in &now.modules {
        let share = of_entered(part, now);
        let old = was.get(part.name.as_str()).copied();
        let ipp = part.per_packet();
        match (old, old.and_then(PartCounts::per_packet), ipp) {
            (Some(old), Some(was), Some(is)) => {
                let why = split(old, part, others.get(part.name.as_str()).copied());
                why.iter().for_each(|why| *causes.entry(why.cause).or_default() += share * why.ipp);
                let traffic = (share - of_entered(old, before)) * was;
                *causes.entry(GateCause::Traffic).or_default() += traffic;
                parts.push((part.name.clone(), share * (is - was) + traffic));
                findings.extend(finding(old, part, why, limit));
            }
            (None, _, _) => {
                *causes.entry(GateCause::Appeared).or_default() += share * ipp.unwrap_or(0.0);
                parts.push((part.name.clone(), share * ipp.unwrap_or(0.0)));
                findings.push(alone(part, GateVerdict::Appeared, GateCause::Appeared));
            }
            (Some(_), None, Some(is)) => {
                *causes.entry(GateCause::Traffic).or_default() += share * is;
                parts.push((part.name.clone(), share * is));
                findings.push(alone(part, GateVerdict::Within, GateCause::Traffic));
            }
            // Handled below, with the removed modules.
            (Some(_), _, None) => {}
        }
    }
    for part in &before.modules {
        let unused = is.get(part.name.as_str()).is_none_or(|now| now.packets == 0);
        if let Some(was) = part.per_packet().filter(|_| unused) {
            let gone = of_entered(part, before) * was;
            *causes.entry(GateCause::Vanished).or_default() -= gone;
            parts.push((part.name.clone(), -gone));
            findings.push(alone(part, GateVerdict::Decreased, GateCause::Vanished));
        }
    }
    let modules = if causes.contains_key(&GateCause::Appeared) {
        GateCause::Appeared
    } else if causes.contains_key(&GateCause::Vanished) {
        GateCause::Vanished
    } else {
        GateCause::Traffic
    };
    let why = split_residue(before, now, other, modules);
    why.iter().for_each(|why| *causes.entry(why.cause).or_default() += why.ipp);
    if let (Some(was), Some(is)) = (before.residue.per_packet(), now.residue.per_packet()) {
        parts.push((now.residue.name.clone(), is - was));
    }
    findings.extend(finding(&before.residue, &now.residue, why, limit));
    let why = causes.into_iter().map(|(cause, ipp)| CauseShare { cause, ipp }).collect();
    if let Some(mut whole) = finding(&before.whole, &now.whole, why, limit) {
        whole.mostly = largest(parts, whole.now.zip(whole.before).map_or(0.0, |(now, before)| now - before));
        findings.push(whole);
    }
    Compared { case: now.name(), findings, parts: now.parts().count() }
}

/// Returns the factor by which batches have become smaller; a factor below 1 means larger batches. Among the findings
/// beyond the limit, the finding with the largest change of batches decides. The caller counts the present build once
/// more, with batches changed by this factor, and passes this count to [`compare`] as `other`. Returns `None` if none
/// of the findings beyond the limit has other batches than the baseline. Then no other count is needed.
#[must_use]
pub fn wants(before: &Case, now: &Case, limit: f64) -> Option<f64> {
    let compared = compare(before, now, None, limit);
    let beyond = compared.findings.iter().filter(|finding| finding.verdict != GateVerdict::Within);
    let factors = beyond.filter_map(|finding| {
        let [was, is] = finding.packets_per_call;
        was.zip(is).map(|(was, is)| was / is).filter(|factor| (factor - 1.0).abs() > 1e-6)
    });
    factors.max_by(|a, b| a.ln().abs().total_cmp(&b.ln().abs()))
}

/// Separates the effects of code and batches. `other` is the present code with other batches. The returned changes add
/// up to the change of the part. Empty if a side has no packets.
fn split(before: &PartCounts, now: &PartCounts, other: Option<&PartCounts>) -> Vec<CauseShare> {
    let figures = |part: &PartCounts| part.per_packet().zip(part.calls_per_packet());
    let (Some((was, calls_before)), Some((is, calls_now))) = (figures(before), figures(now)) else { return Vec::new() };
    let same = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
    if same(calls_before, calls_now) {
        return vec![CauseShare { cause: GateCause::Code, ipp: is - was }];
    }
    match other.and_then(figures).filter(|(_, calls)| !same(*calls, calls_now)) {
        Some((ipp, calls)) => {
            let per_call = (is - ipp) / (calls_now - calls);
            let batches = per_call * (calls_now - calls_before);
            vec![
                CauseShare { cause: GateCause::Code, ipp: is - was - batches },
                CauseShare { cause: GateCause::Batches, ipp: batches },
            ]
        }
        None => vec![CauseShare { cause: GateCause::CodeOrBatches, ipp: is - was }],
    }
}

/// Separates the effects like [`split`] for the residue, whose calls are the calls of all modules. There are more calls
/// if the batches of modules are smaller, or if packets visit more modules. The second effect gets the cause `modules`.
fn split_residue(before: &Case, now: &Case, other: Option<&Case>, modules: GateCause) -> Vec<CauseShare> {
    let mut why = split(&before.residue, &now.residue, other.map(|case| &case.residue));
    let visits = |case: &Case| {
        let visits: f64 = case.modules.iter().map(|module| module.packets as f64).sum();
        visits / case.whole.packets.max(1) as f64
    };
    // The residue has calls of many types. The line through two counts separates code from batches only if one of the
    // counts has the baseline's batches.
    let of_visit = |case: &Case| case.residue.calls_per_packet().unwrap_or(0.0) / visits(case);
    let reached = [Some(now), other].into_iter().flatten();
    let reached = reached.into_iter().any(|case| (of_visit(case) / of_visit(before) - 1.0).abs() <= REACHED);
    if why.iter().any(|why| why.cause == GateCause::Batches) && !reached {
        let ipp = why.iter().map(|why| why.ipp).sum();
        why = vec![CauseShare { cause: GateCause::CodeOrBatches, ipp }];
    }
    let calls = [before, now].map(|case| case.residue.calls_per_packet().unwrap_or(0.0));
    let (were, are) = (visits(before), visits(now));
    let Some(batches) = why.iter_mut().find(|why| why.cause == GateCause::Batches) else { return why };
    if were > 0.0 && (were - are).abs() > 1e-9 * were && calls[1] != calls[0] {
        // The effect of the additional visits, if each call has as many packets as before. The rest is the effect of
        // fewer packets per call.
        let part = batches.ipp * (are - were) * (calls[0] / were) / (calls[1] - calls[0]);
        batches.ipp -= part;
        why.push(CauseShare { cause: modules, ipp: part });
    }
    why
}

/// A change of at most this many instructions per packet is within any limit except 0. The compiler changes the same
/// code by this much if the sources are in another folder.
pub const LEAST: f64 = 0.05;

/// Returns the finding for a part, or `None` if the part has not changed or a side has no packets. `why` contains all
/// causes of the change; small ones are removed.
fn finding(before: &PartCounts, now: &PartCounts, mut why: Vec<CauseShare>, limit: f64) -> Option<Finding> {
    let (was, is) = (before.per_packet()?, now.per_packet()?);
    let delta = is - was;
    if before.instructions == now.instructions && before.packets == now.packets {
        return None;
    }
    let most = if limit > 0.0 { LEAST.max(limit * was) } else { 0.0 };
    let verdict = match delta {
        _ if delta > most => GateVerdict::Increased,
        _ if -delta > most => GateVerdict::Decreased,
        _ => GateVerdict::Within,
    };
    // Causes of at most one hundredth of the change are left out.
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

/// Returns the finding for a module that only one side has, or that has packets on one side only.
fn alone(part: &PartCounts, verdict: GateVerdict, cause: GateCause) -> Finding {
    let (ipp, gone) = (part.per_packet(), cause == GateCause::Vanished);
    let packets = part.calls_per_packet().filter(|calls| *calls > 0.0).map(f64::recip);
    Finding {
        part: part.name.clone(),
        function: part.function.clone(),
        verdict,
        before: ipp.filter(|_| gone),
        now: ipp.filter(|_| !gone),
        change: None,
        packets_per_call: if gone { [packets, None] } else { [None, packets] },
        why: ipp.map(|ipp| CauseShare { cause, ipp: if gone { -ipp } else { ipp } }).into_iter().collect(),
        mostly: Vec::new(),
    }
}

/// Returns the parts that cause most of the change `delta`, the largest first. There are at most three, and no more
/// than are needed to explain 80 % of the change. Parts that changed in the other direction are left out.
fn largest(mut parts: Vec<(String, f64)>, delta: f64) -> Vec<(String, f64)> {
    parts.retain(|(_, ipp)| ipp * delta > 0.0);
    parts.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
    let mut explained = 0.0;
    parts.truncate(3);
    parts.retain(|(_, ipp)| {
        let more = explained < 0.8 * delta.abs();
        explained += ipp.abs();
        more
    });
    parts
}

#[cfg(test)]
mod tests;
