//! The table drawn into memory.

use forebay_graph::report::{Delay, FlowReport, Kind, ModuleReport, Packets, PortReport, WorkerReport};
use forebay_measure::machine::Cpu;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;

/// A report of so many modules, the last of which takes most of the time, and one flow.
pub(crate) fn report(modules: usize) -> Report {
    let module = |at: usize| ModuleReport {
        folded: None,
        name: format!("m{at}"),
        function: "ttl".into(),
        workers: vec![0],
        packets: 1_000,
        rate_pps: 1e6,
        batches: 100,
        batch_mean: Some(10.0),
        ingress_mean: Some(2.5),
        batch_sizes: [0; 9],
        trigger: 16,
        hold_us: Some(50.0),
        weight: None,
        ticks_per_packet: Some(12.5),
        ticks_per_batch: Some(125.0),
        metered: None,
        share: Some(at as f64 / modules as f64),
        dropped: 3,
        counters: Default::default(),
    };
    let delay_us = Delay { p50: Some(10.0), p95: Some(20.0), p99: Some(30.0), samples: 9, ..Delay::default() };
    Report {
        pipeline: "gateway".to_owned(),
        forebay: "0".into(),
        kind: Kind::Measured,
        cpu: Cpu { model: "a CPU".to_owned(), tsc_ghz: 2.0 },
        duration_s: 2.0,
        packets: Packets {
            entered: 2_000_000,
            lost: 4,
            created: Default::default(),
            out: 1_999_998,
            dropped: [("m0.ttl_expired".to_owned(), 2)].into(),
            consumed: Default::default(),
            queued: 0,
            held: 0,
            in_flight: 0,
        },
        modules: (0..modules).map(module).collect(),
        flows: vec![FlowReport {
            name: "video".to_owned(),
            packets: 9,
            rate_pps: 4.5,
            delay_us,
            slo_us: Some(25.0),
            percentile: Some(forebay_graph::Percentile::Of(99.0)),
            at_percentile_us: Some(30.0),
            violations: Some(1),
            kept: Some(false),
            min_rate_pps: None,
            turned_away: None,
            rate_kept: None,
        }],
        workers: vec![WorkerReport { core: Some(1), busy: 0.5, turns: 9, ..WorkerReport::default() }],
        ports: vec![PortReport {
            name: "in".to_owned(),
            kind: "generator".into(),
            received: 9,
            dropped: 4,
            ..PortReport::default()
        }],
        arrival_clocks: vec!["poll".into()],
        pool_exhausted: 0,
        lost_lines: Vec::new(),
        removed_flows: Vec::new(),
        control: None,
    }
}

fn view(modules: usize) -> View {
    View { recent: Some(report(modules)), whole: Some(report(modules)), by_load: true, ..View::default() }
}

/// What is on a screen of that size.
fn screen(view: &View, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory");
    terminal.draw(|frame| view.draw(frame)).expect("memory");
    terminal.backend().to_string()
}

#[test]
fn modules_flows_and_totals_are_shown() {
    let shown = screen(&view(3), 120, 30);
    for said in
        ["gateway", "in 1.000M pps", "busy 50.0 %", "m2", "12.5", "video", "20.00 us", "missed", "lost at ports 4"]
    {
        assert!(shown.contains(said), "'{said}' is not in\n{shown}");
    }
}

#[test]
fn a_controller_is_shown_with_its_last_decision_and_what_nothing_keeps() {
    let mut view = view(3);
    view.recent.as_mut().expect("a report").control = Some(crate::control::tests::control());
    let shown = screen(&view, 130, 30);
    for said in [
        "optimal every 100.0 ms, guard 5 %: 4 of 123 periods missed an objective; ",
        "last: m0 8 -> 14 and 1 more: the least load within all objectives (12.3 s)",
        "video cannot keep 100.0 us (5 % in reserve): it takes 300.0 us although it waits for no batch",
        "p99 30.00 us",
    ] {
        assert!(shown.contains(said), "'{said}' is not in\n{shown}");
    }
    let row = shown.lines().find(|line| line.contains("│m2 ")).expect("the module's row");
    let figures: Vec<&str> = row.split_whitespace().skip(2).take(4).collect();
    assert_eq!(figures, ["1.000M", "2.50", "16", "10.00"], "packets a second, batch in, trigger, batch out\n{row}");
    // Nothing of that is cut off on the usual terminal.
    view.recent.as_mut().and_then(|report| report.control.as_mut()).expect("set above").stalled = 3;
    let shown = screen(&view, 80, 24);
    for said in [
        "missed an objective",
        "half the objective or more",
        "(at most 90.00 us)",
        "(12.3 s)",
        "300.0 us although it waits",
        "p99 30.00 us",
        "25.00 us",
        "missed│",
    ] {
        assert!(shown.contains(said), "'{said}' is not in\n{shown}");
    }
    let control = view.recent.as_mut().and_then(|report| report.control.as_mut()).expect("set above");
    let unkept = control.unkept[0].clone();
    control.unkept.resize(9, unkept);
    control.trouble = Some("a worker does not answer".to_owned());
    let shown = screen(&view, 130, 30);
    for said in ["and so do 6 more", "a worker does not answer", "m2", "missed"] {
        assert!(shown.contains(said), "'{said}' is not in\n{shown}");
    }
    screen(&view, 20, 4);
}

/// A flow that is late is seen at once.
#[test]
fn delays_above_an_objective_are_red() {
    let colour_of = |kept| {
        let mut view = view(1);
        view.recent.as_mut().expect("a report").flows[0].kept = Some(kept);
        let mut terminal = Terminal::new(TestBackend::new(120, 30)).expect("memory");
        terminal.draw(|frame| view.draw(frame)).expect("memory");
        let buffer = terminal.backend().buffer();
        let row = (0..30u16).find(|row| buffer[(1, *row)].symbol() == "v").expect("the flow video");
        let column = (0..120u16).find(|column| {
            let text: String =
                (0..12).filter_map(|at| buffer.cell((column + at, row))).map(|cell| cell.symbol()).collect();
            text == "p99 30.00 us"
        });
        buffer[(column.expect("its delay"), row)].fg
    };
    use ratatui::style::Color;
    assert_eq!((colour_of(false), colour_of(true)), (Color::Red, Color::Green));
}

/// Only the first worker was shown of several, and what ports lost only as a total that grew.
#[test]
fn losses_of_the_interval_and_every_worker_are_shown() {
    let mut view = view(1);
    assert!(screen(&view, 120, 30).contains("lost at in 2 pps"), "{}", screen(&view, 120, 30));
    let recent = view.recent.as_mut().expect("a report");
    let first = recent.workers[0].clone();
    recent.workers.push(WorkerReport { id: 1, core: Some(0), busy: 0.015, ..first });
    recent.ports[0].dropped = 0;
    let shown = screen(&view, 120, 30);
    for said in ["gateway  2.0 s on cores 1, 0 ", "busy 50.0/1.5 %", "lost at ports 4"] {
        assert!(shown.contains(said), "'{said}' is not in\n{shown}");
    }
    assert!(!shown.contains("lost at in"), "{shown}");
}

#[test]
fn hundreds_of_modules_are_scrolled_and_sorted() {
    let mut view = view(355);
    assert!(screen(&view, 120, 30).contains("m354"), "the heaviest comes first");
    view.obey(KeyCode::Char('s'), false, 10);
    let shown = screen(&view, 120, 30);
    assert!(shown.contains("m0 ") && !shown.contains("m354"), "{shown}");
    (0..5).for_each(|_| assert!(!view.obey(KeyCode::PageDown, false, 10)));
    assert!(screen(&view, 120, 30).contains("modules 51 of 355"));
    view.obey(KeyCode::End, false, 10);
    assert!(screen(&view, 120, 30).contains("m354"));
    view.obey(KeyCode::Down, false, 10);
    assert_eq!(view.scroll, 354, "no further than the last");
}

/// Who watches with `top` leaves a pipeline that runs on.
#[test]
fn what_q_does_is_said() {
    for (quit, said) in [(Quit::EndRun, "q end"), (Quit::Leave, "q leave")] {
        assert!(screen(&View { quit, ..View::default() }, 120, 30).contains(said));
        assert!(screen(&View { quit, ..view(3) }, 120, 30).contains(&format!("{said}   s ")));
    }
}

#[test]
fn no_screen_is_too_small() {
    for (width, height) in [(1, 1), (20, 4), (80, 6), (500, 3)] {
        screen(&view(40), width, height);
        screen(&View::default(), width, height);
    }
}

/// Esc ended a run at once, and so did a `q` that was meant for another window.
#[test]
fn q_asks_once_before_it_ends_a_run_and_escape_ends_none() {
    let mut view = view(1);
    assert!(!view.obey(KeyCode::Esc, false, 1));
    for other in [KeyCode::Esc, KeyCode::Char('s'), KeyCode::Down] {
        assert!(!view.obey(KeyCode::Char('q'), false, 1));
        assert!(screen(&view, 80, 24).contains("q again ends the run, any other key goes on"));
        assert!(!view.obey(other, false, 1));
        assert!(!screen(&view, 80, 24).contains("q again"), "another key takes it back");
    }
    assert!(!view.obey(KeyCode::Char('q'), false, 1) && view.obey(KeyCode::Char('q'), false, 1));
    assert!(view.obey(KeyCode::Char('c'), true, 1) && !view.obey(KeyCode::Char('c'), false, 1));
    let mut watcher = View { quit: Quit::Leave, ..self::view(1) };
    assert!(watcher.obey(KeyCode::Char('q'), false, 1) && watcher.obey(KeyCode::Esc, false, 1));
}
