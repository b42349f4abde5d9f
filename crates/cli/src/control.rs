//! Describes a controller, its decisions and their results: for the live table, the line per interval, and the summary.

use std::collections::HashSet;

use forebay_protocol::{
    UnkeptCause,
    report::{
        ChangeReport, ControlReport, FlowReport, MoveReason, MoveReport, Report, ShortCauseReport, ShortReport,
        UnkeptReport, WorkerReport,
    },
};

use crate::format::{counted, short, span};

/// Maximum number of flows or modules that are named. If there are more, the others are only counted.
const NAMED: usize = 4;
/// Maximum number of sentences about missed objectives of a kind (delay or rate). A last sentence counts the others.
const SENTENCES: usize = 3;
/// If other programs had a worker's core for at least this share of the time, the output names `forebay doctor`.
const ELSEWHERE: f64 = 0.005;

/// Describes the controller and its results.
pub(crate) fn state(control: &ControlReport, workers: &[WorkerReport]) -> String {
    clauses(control, workers).join("; ")
}

/// Returns the parts of [`state`], the most important part first.
pub(crate) fn clauses(control: &ControlReport, workers: &[WorkerReport]) -> Vec<String> {
    let ControlReport { controller, period_ms, guard, periods, violated, stalled, took_us, .. } = control;
    let (every, periods) = (span(Some(period_ms * 1e3)), counted(*periods, "period"));
    let reserve = guard * 100.0;
    let missed =
        format!("{controller} every {every}, guard {reserve:.0} %: {violated} of {periods} missed an objective");
    // A turn may also be long because it has much work. Therefore the machine is named as a cause only if stalls were
    // measured.
    let elsewhere = workers.iter().any(|worker| worker.machine_stalls.share >= ELSEWHERE);
    let doctor = if elsewhere { " (the machine ran something else: see `forebay doctor`)" } else { "" };
    let turns = (*stalled > 0)
        .then(|| format!("in {stalled} of the missed periods, a turn took half the objective or more{doctor}"));
    let took =
        took_us.map(|(median, most)| format!("it decides in {} (at most {})", span(Some(median)), span(Some(most))));
    let late = took_us.filter(|(median, _)| *median > period_ms * 1e3);
    let late = late.map(|_| "a decision takes longer than the period: set a longer period".to_owned());
    [Some(missed), turns, took, late].into_iter().flatten().collect()
}

/// Returns the last decision that changed a trigger: one of its changes, and the number of its other changes.
fn last(control: &ControlReport) -> Option<(&ChangeReport, usize)> {
    let last = control.changes.iter().max_by(|a, b| a.at_s.total_cmp(&b.at_s))?;
    let together = control.changes.iter().filter(|change| change.at_s == last.at_s).count();
    // `max_by` has returned the last change of this decision. Name the first one.
    let first = control.changes.iter().find(|change| change.at_s == last.at_s)?;
    Some((first, together - 1))
}

/// Formats the last decision that changed a trigger, without its reason.
fn change((change, more): (&ChangeReport, usize)) -> String {
    let ChangeReport { module, from, to, .. } = change;
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{module} {from} -> {to}{more}")
}

/// Formats the last decision that changed a trigger, with its reason.
pub(crate) fn decision(control: &ControlReport) -> Option<String> {
    let change_and_more = last(control)?;
    let flow = change_and_more.0.flow.as_ref().map_or(String::new(), |flow| format!("flow {flow}, "));
    Some(format!(
        "last: {}: {} ({flow}{:.1} s)",
        change(change_and_more),
        change_and_more.0.why,
        change_and_more.0.at_s
    ))
}

/// Returns sentences on the first objectives of delay and of rate that are not kept. Objectives that were missed
/// because of the machine are left out, because a controller cannot keep them.
pub(crate) fn unkept(control: &ControlReport, flows: &[FlowReport]) -> Vec<String> {
    let by_machine: HashSet<_> = flows.iter().filter(|flow| flow.missed_by_machine).map(|flow| &flow.name).collect();
    let sentence = |unkept: &UnkeptReport| {
        let (takes, slo) = (span(Some(unkept.least_us)), span(Some(unkept.slo_us)));
        let reserve = match unkept.cause {
            UnkeptCause::Share | UnkeptCause::Load | UnkeptCause::Stated => String::new(),
            UnkeptCause::Slow | UnkeptCause::Time => format!(" ({:.0} % in reserve)", control.guard * 100.0),
        };
        let why = match unkept.cause {
            UnkeptCause::Share => "its rate is limited because it offers more than its share".to_owned(),
            UnkeptCause::Slow => format!("it takes {takes} although it waits for no batch"),
            UnkeptCause::Time => format!("it takes {takes}, because a worker has no time for smaller batches"),
            UnkeptCause::Load => {
                format!(
                    "it takes {takes}, because more packets arrive than a worker has time for, even in the largest \
                     batches"
                )
            }
            UnkeptCause::Stated => {
                format!("it takes {takes}, because a trigger is set in the configuration or by hand")
            }
        };
        format!("{} cannot keep {slo}{reserve}: {why}", unkept.flow)
    };
    let late: Vec<_> = control.unkept.iter().filter(|unkept| !by_machine.contains(&unkept.flow)).collect();
    let slow: Vec<_> = control.short.iter().filter(|short| !by_machine.contains(&short.flow)).collect();
    let mut sentences = first_of(&late, |unkept| sentence(unkept));
    sentences.extend(first_of(&slow, |short| too_slow(short)));
    sentences
}

/// Returns a sentence for each of the first elements, and the number of the others in a last sentence.
fn first_of<T>(all: &[T], sentence: impl Fn(&T) -> String) -> Vec<String> {
    let mut sentences: Vec<_> = all.iter().take(SENTENCES).map(sentence).collect();
    let more = all.len().saturating_sub(SENTENCES);
    sentences.extend((more > 0).then(|| format!("and {}", counted(more as u64, "more flow"))));
    sentences
}

/// Returns the last move of modules to another worker with its reason, and the reason for a move that was not made.
pub(crate) fn moves(control: &ControlReport) -> Vec<String> {
    let last = control.moves.last().map(|moved| {
        let MoveReport { at_s, from, to, why, turn_us, pause_us, .. } = moved;
        let modules: Vec<_> = moved.modules.iter().map(String::as_str).collect();
        let flow = moved.flow.as_deref().unwrap_or("a flow");
        let (turn, pause) = (span(Some(*turn_us)), span(Some(*pause_us)));
        let why = match why {
            MoveReason::Apart => format!(
                "{flow} cannot keep its objective on a worker with these modules, where a turn takes up to {turn}"
            ),
            MoveReason::Together => {
                format!("all flows keep their objectives on one worker again, where a turn takes up to {turn}")
            }
        };
        let all = control.moves.len();
        let all = if all > 1 { format!(", the last of {all} moves") } else { String::new() };
        format!(
            "moved: {} from worker {from} to worker {to}: {why} ({at_s:.1} s, paused {pause}{all})",
            names(&modules)
        )
    });
    last.into_iter().chain(control.unmoved.iter().map(|why| format!("not moved: {why}"))).collect()
}

/// Explains why a flow does not get its rate, and what the user can do.
fn too_slow(report: &ShortReport) -> String {
    let why = match &report.cause {
        ShortCauseReport::Time { worker, load } => format!(
            "all stated rates together need {:.0} % of the time of worker {worker}: state lower rates, or add a worker",
            load * 100.0
        ),
        ShortCauseReport::Together { with, module } => {
            format!("{with} passes all modules of this flow from {module} on: give each flow a module of its own")
        }
        ShortCauseReport::Held { module } => format!(
            "its packets wait for packets of other flows before {module}: set `when_full: drop` in `shares` for the \
             modules after {module}; if all of these modules have it, reduce the load or add a worker"
        ),
    };
    let (stated, has) = (short(report.min_rate_pps), short(report.rate_pps));
    let stated = match report.min_rate_bps {
        Some(rate) => format!("{}bps ({stated} pps of its packets)", short(rate)),
        None => format!("{stated} pps"),
    };
    format!("{} cannot have {stated} and has {has}: {why}", report.flow)
}

/// Describes the controller in one short line.
pub(crate) fn in_short(control: &ControlReport) -> String {
    let last = last(control).map_or(String::new(), |last| format!(" {}", change(last)));
    let slow = control.short.iter().map(|short| short.flow.as_str());
    let late = control.unkept.iter().map(|unkept| unkept.flow.as_str());
    // A flow that misses both objectives is named once.
    let mut seen = HashSet::new();
    let unkept: Vec<_> = late.chain(slow).filter(|flow| seen.insert(*flow)).collect();
    let moved = control.moves.last().map_or(String::new(), |moved| {
        format!(", {} to worker {}", counted(moved.modules.len() as u64, "module"), moved.to)
    });
    let unkept = if unkept.is_empty() { String::new() } else { format!("  cannot be kept: {}", names(&unkept)) };
    format!(
        "{}{last}, {} of {} missed{moved}{unkept}",
        control.controller,
        control.violated,
        counted(control.periods, "period")
    )
}

/// The outcome of objectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectiveOutcome {
    /// No objective was missed.
    Kept,
    /// Objectives were missed, but only because the machine ran other work on a worker's core.
    Machine,
    /// Objectives were missed for another reason.
    Missed,
}

/// A sentence about objectives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) text: String,
    /// The numbers of kept and missed objectives, without names; `None` for other sentences.
    pub(crate) brief: Option<String>,
    pub(crate) outcome: ObjectiveOutcome,
}

/// Returns sentences on whether flows kept their objectives of delay and of rate, if a flow has such an objective.
/// Further sentences report rates that the controller does not control, and missed objectives of flows that a reload
/// removed.
pub(crate) fn verdicts(report: &Report) -> Vec<Verdict> {
    let delays = verdict("objectives", report, |flow| flow.slo_us.map(|_| flow.kept));
    let rates = verdict("rates", report, |flow| flow.min_rate_pps.or(flow.min_rate_bps).map(|_| flow.rate_kept));
    let name = report.control.as_ref().map_or("null", |control| control.controller.as_str());
    let serves = forebay_graph::controllers().iter().any(|controller| controller.name == name && controller.rates);
    let missed = |text: String| Verdict { text, brief: None, outcome: ObjectiveOutcome::Missed };
    let unserved = (rates.is_some() && !serves).then(|| missed(format!("{name} does not control rates: use fair")));
    let removed: Vec<_> = report.removed_flows.iter().map(|flow| flow.name.as_str()).collect();
    let removed = (!removed.is_empty())
        .then(|| missed(format!("MISSED before a reload removed the flow or its objective: {}", names(&removed))));
    [delays, rates, unserved, removed].into_iter().flatten().collect()
}

/// Counts the flows that kept an objective. `of` returns `None` for flows without this objective, and `Some(None)` for
/// flows without packets. Returns `None` if no flow has this objective.
fn verdict(what: &str, report: &Report, of: impl Fn(&FlowReport) -> Option<Option<bool>>) -> Option<Verdict> {
    let judged: Vec<_> = report.flows.iter().filter_map(|flow| Some((flow, of(flow)?))).collect();
    let names_of = |wanted: Option<bool>, by_machine: bool| -> Vec<&str> {
        let those = judged.iter().filter(|(flow, kept)| *kept == wanted && flow.missed_by_machine == by_machine);
        those.map(|(flow, _)| flow.name.as_str()).collect()
    };
    let (missed, machine) = (names_of(Some(false), false), names_of(Some(false), true));
    let idle = judged.iter().filter(|(_, kept)| kept.is_none()).count();
    let (kept, all) = (judged.iter().filter(|(_, kept)| *kept == Some(true)).count(), judged.len());
    let part = |count: usize, text: String| if count > 0 { format!(", {text}") } else { String::new() };
    let late = part(missed.len(), format!("{} MISSED", missed.len()));
    let late_names = if missed.is_empty() { String::new() } else { format!(": {}", names(&missed)) };
    let robbed = part(machine.len(), format!("{} missed only because the core ran other work", machine.len()));
    let robbed_names = if machine.is_empty() { String::new() } else { format!(": {}", names(&machine)) };
    let robbed_brief = part(machine.len(), format!("{} by machine", machine.len()));
    let idle = part(idle, format!("{idle} without packets"));
    let outcome = match (missed.len(), machine.len()) {
        (0, 0) => ObjectiveOutcome::Kept,
        (0, _) => ObjectiveOutcome::Machine,
        _ => ObjectiveOutcome::Missed,
    };
    (all > 0).then(|| Verdict {
        text: format!("{what}: {kept} of {all} kept{late}{late_names}{robbed}{robbed_names}{idle}"),
        brief: Some(format!("{what}: {kept} of {all} kept{late}{robbed_brief}")),
        outcome,
    })
}

/// Returns true if a flow missed an objective of delay or rate, also if a reload removed the flow.
pub(crate) fn is_missed(report: &Report) -> bool {
    report.flows.iter().chain(&report.removed_flows).any(FlowReport::is_missed)
}

/// Formats a flow's delay objective: `p99 ≤ 1.000 ms`, or `-`.
pub(crate) fn delay_objective(flow: &FlowReport) -> String {
    let objective = flow.slo_us.zip(flow.percentile);
    objective.map_or_else(|| "-".to_owned(), |(slo, percentile)| format!("{percentile} ≤ {}", span(Some(slo))))
}

/// Returns true if any flow has a rate objective. Only then do tables have columns for it.
pub(crate) fn has_rates(report: &Report) -> bool {
    report.flows.iter().any(|flow| flow.min_rate_pps.or(flow.min_rate_bps).is_some())
}

/// Returns the heading of the column of rate objectives.
pub(crate) fn rate_head(report: &Report) -> &'static str {
    if report.flows.iter().any(|flow| flow.min_rate_bps.is_some()) { "least rate" } else { "least packets/s" }
}

/// Formats a flow's rate objective. An objective in bits also shows the measured bit rate.
pub(crate) fn stated_rate(flow: &FlowReport) -> String {
    let has = flow.rate_bps.map_or_else(String::new, |rate| format!("{} of ", short(rate)));
    let bits = || flow.min_rate_bps.map(|rate| format!("{has}{}bps", short(rate)));
    flow.min_rate_pps.map(short).or_else(bits).unwrap_or_else(|| "-".to_owned())
}

/// Lists at most [`NAMED`] names, and counts the others.
fn names(of: &[&str]) -> String {
    let more = of.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", of[..of.len().min(NAMED)].join(", "))
}

#[cfg(test)]
pub(crate) mod tests {
    use forebay_protocol::{ChangeReason, report::Stalls};

    use super::*;
    use crate::live::tests::report;

    fn texts(report: &Report) -> Vec<String> {
        verdicts(report).into_iter().map(|verdict| verdict.text).collect()
    }

    /// A controller that set three triggers, two at the same time, and cannot keep one objective.
    pub(crate) fn control() -> ControlReport {
        let change = |at_s: f64, module: &str, from: usize, to: usize| ChangeReport {
            at_s,
            module: module.to_owned(),
            from,
            to,
            why: ChangeReason::Optimum,
            flow: None,
        };
        ControlReport {
            controller: "optimal".to_owned(),
            period_ms: 100.0,
            guard: 0.05,
            periods: 123,
            violated: 4,
            stalled: 0,
            took_us: Some((12.0, 90.0)),
            changes: vec![change(3.0, "m2", 0, 4), change(12.34, "m0", 8, 14), change(12.34, "m1", 0, 3)],
            unkept: vec![UnkeptReport {
                flow: "video".to_owned(),
                least_us: 300.0,
                slo_us: 100.0,
                cause: UnkeptCause::Slow,
            }],
            ..ControlReport::default()
        }
    }

    #[test]
    fn a_controller_is_told_in_sentences() {
        let seen = control();
        let expected = "optimal every 100.0 ms, guard 5 %: 4 of 123 periods missed an objective; it decides in 12.00 \
                        us (at most 90.00 us)";
        let workers = |share| {
            let machine_stalls = Stalls { share, ..Stalls::default() };
            [WorkerReport::default(), WorkerReport { machine_stalls, ..WorkerReport::default() }]
        };
        assert_eq!(state(&seen, &workers(0.5)), expected);
        let slow = ControlReport { took_us: Some((120e3, 300e3)), ..seen.clone() };
        assert!(state(&slow, &[]).ends_with("a decision takes longer than the period: set a longer period"));
        // Regression: the machine was blamed for turns that were as long as the pipeline's own calls.
        let stalled = ControlReport { stalled: 3, took_us: None, ..seen.clone() };
        let expected = "4 of 123 periods missed an objective; in 3 of the missed periods, a turn took half the \
                        objective or more";
        let of_machine = format!("{expected} (the machine ran something else: see `forebay doctor`)");
        for (share, expected) in [(0.0, expected), (0.0049, expected), (0.005, &of_machine)] {
            let seen = state(&stalled, &workers(share));
            assert!(seen.ends_with(expected), "{seen}");
        }
        let expected = "last: m0 8 -> 14 and 1 more: the least load within all objectives (12.3 s)";
        assert_eq!(decision(&seen).as_deref(), Some(expected));
        let expected = "video cannot keep 100.0 us (5 % in reserve): it takes 300.0 us although it waits for no batch";
        assert_eq!(unkept(&seen, &[]), [expected]);
        let many = ControlReport { unkept: vec![seen.unkept[0].clone(); 9], ..seen.clone() };
        assert_eq!((unkept(&many, &[]).len(), unkept(&many, &[])[3].as_str()), (4, "and 6 more flows"));
        assert_eq!(in_short(&seen), "optimal m0 8 -> 14 and 1 more, 4 of 123 periods missed  cannot be kept: video");
        let nothing = ControlReport { controller: "null".to_owned(), ..ControlReport::default() };
        assert_eq!((decision(&nothing), in_short(&nothing).as_str()), (None, "null, 0 of 0 periods missed"));
    }

    #[test]
    fn what_moves_is_told_with_its_reason() {
        let moved = |why, (from, to)| MoveReport {
            at_s: 1.25,
            modules: ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec(),
            from,
            to,
            why,
            flow: Some("video".to_owned()),
            turn_us: 1_542.0,
            pause_us: 80.0,
        };
        let mut seen = ControlReport { moves: vec![moved(MoveReason::Apart, (0, 1))], ..control() };
        let expected = "moved: a, b, c, d and 1 more from worker 0 to worker 1: video cannot keep its objective on \
                        a worker with these modules, where a turn takes up to 1.542 ms (1.2 s, paused 80.00 us)";
        assert_eq!(moves(&seen), [expected]);
        assert!(
            in_short(&seen).contains("4 of 123 periods missed, 5 modules to worker 1  cannot"),
            "{}",
            in_short(&seen)
        );
        seen.moves.push(moved(MoveReason::Together, (1, 0)));
        seen.unmoved = Some("no core".to_owned());
        let expected = "moved: a, b, c, d and 1 more from worker 1 to worker 0: all flows keep their objectives \
                        on one worker again, where a turn takes up to 1.542 ms (1.2 s, paused 80.00 us, the last of \
                        2 moves)";
        assert_eq!(moves(&seen), [expected, "not moved: no core"]);
        assert!(moves(&control()).is_empty());
    }

    #[test]
    fn rates_that_flows_do_not_have_are_told_with_why_and_what_helps() {
        let short = |cause| ShortReport {
            flow: "video".to_owned(),
            rate_pps: 4e5,
            min_rate_pps: 1e6,
            min_rate_bps: None,
            cause,
        };
        let causes = [
            ShortCauseReport::Time { worker: 0, load: 1.44 },
            ShortCauseReport::Together { with: "rest".to_owned(), module: "fw".to_owned() },
            ShortCauseReport::Held { module: "split".to_owned() },
        ];
        let report = ControlReport { unkept: Vec::new(), short: causes.map(short).to_vec(), ..control() };
        let expected = [
            "all stated rates together need 144 % of the time of worker 0: state lower rates, or add a worker",
            "rest passes all modules of this flow from fw on: give each flow a module of its own",
            "its packets wait for packets of other flows before split: set `when_full: drop` in `shares` for the \
             modules after split; if all of these modules have it, reduce the load or add a worker",
        ];
        assert_eq!(
            unkept(&report, &[]),
            expected.map(|why| format!("video cannot have 1.000M pps and has 400.0k: {why}"))
        );
        assert!(in_short(&report).ends_with("cannot be kept: video"));
    }

    #[test]
    fn flows_that_a_reload_removed_count_as_missed() {
        let mut seen = report(1);
        seen.flows.truncate(1);
        (seen.flows[0].kept, seen.flows[0].rate_kept) = (Some(true), None);
        assert!(!is_missed(&seen));
        let flow = FlowReport { name: "video".to_owned(), kept: Some(false), ..seen.flows[0].clone() };
        seen.removed_flows = vec![flow];
        assert!(is_missed(&seen));
        assert_eq!(
            texts(&seen).last().map(String::as_str),
            Some("MISSED before a reload removed the flow or its objective: video")
        );
    }

    #[test]
    fn a_flow_that_misses_both_its_objectives_is_named_once() {
        let cause = ShortCauseReport::Time { worker: 0, load: 1.5 };
        let short = |flow: &str| {
            let cause = cause.clone();
            ShortReport { flow: flow.to_owned(), rate_pps: 4e5, min_rate_pps: 1e6, min_rate_bps: None, cause }
        };
        let report = ControlReport { short: vec![short("video"), short("rest")], ..control() };
        assert!(in_short(&report).ends_with("  cannot be kept: video, rest"), "{}", in_short(&report));
    }

    #[test]
    fn an_objective_that_is_not_kept_is_told_with_why() {
        let sentences = |least_us: f64, cause: UnkeptCause| {
            let held = UnkeptReport { flow: "video".to_owned(), least_us, slo_us: 100.0, cause };
            unkept(&ControlReport { unkept: vec![held], ..control() }, &[])
        };
        let expected = "video cannot keep 100.0 us: its rate is limited because it offers more than its share";
        assert_eq!(sentences(3.0, UnkeptCause::Share), [expected]);
        let expected = "video cannot keep 100.0 us (5 % in reserve): it takes 110.0 us, because a worker has no time \
                        for smaller batches";
        assert_eq!(sentences(110.0, UnkeptCause::Time), [expected]);
    }

    #[test]
    fn objectives_are_counted_and_those_missed_are_named() {
        let mut seen = report(1);
        assert_eq!(texts(&seen), ["objectives: 0 of 1 kept, 1 MISSED: video"]);
        seen.flows[0].kept = Some(true);
        let quiet = forebay_protocol::report::FlowReport { kept: None, ..seen.flows[0].clone() };
        seen.flows.push(quiet);
        assert_eq!(texts(&seen), ["objectives: 1 of 2 kept, 1 without packets"]);
        seen.flows.iter_mut().for_each(|flow| flow.slo_us = None);
        assert_eq!(texts(&seen), <Vec<String>>::new());
        (seen.flows[0].min_rate_pps, seen.flows[0].rate_kept) = (Some(5e5), Some(false));
        let no_control = "null does not control rates: use fair";
        assert_eq!(texts(&seen), ["rates: 0 of 1 kept, 1 MISSED: video", no_control]);
        seen.control = Some(ControlReport { controller: "fair".to_owned(), ..ControlReport::default() });
        assert_eq!(texts(&seen), ["rates: 0 of 1 kept, 1 MISSED: video"]);
        let missed = names(&["a", "b", "c", "d", "e"]);
        assert_eq!(missed, "a, b, c, d and 1 more");
    }
}
