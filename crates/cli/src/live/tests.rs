//! Tests that draw the live view into memory.

use forebay_instance::events::{EventLog, NewEvent};
use forebay_protocol::{
    event::EventName,
    report::{Cpu, Delay, FigureSource, FlowReport, ModuleReport, Packets, PortReport, WorkerReport},
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;

/// A report with this number of modules, the last of which takes most of the time, and one flow.
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
        kind: FigureSource::Measured,
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
            delay_counts: None,
            slo_us: Some(25.0),
            percentile: Some(forebay_units::Percentile::Of(99.0)),
            at_percentile_us: Some(30.0),
            violations: Some(1),
            kept: Some(false),
            min_rate_pps: None,
            min_rate_bps: None,
            rate_bps: None,
            turned_away: None,
            rate_kept: None,
            missed_by_machine: false,
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
    View { recent: Some(report(modules)), whole: Some(report(modules)), ..View::default() }
}

/// A busy view: a machine with other work, a controller with explanations, losses, three workers.
fn busy_view() -> View {
    let mut report = report(40);
    let mut control = crate::control::tests::control();
    let unkept = control.unkept[0].clone();
    control.unkept.resize(5, unkept);
    report.control = Some(control);
    report.workers[0].machine_time.wait = Some(0.38);
    for id in 1..3 {
        let first = report.workers[0].clone();
        report.workers.push(WorkerReport { id, core: Some(id + 1), busy: 0.015, handed: 7, stalls: 3, ..first });
    }
    for at in 0..20 {
        let kept = Some(at % 3 == 0);
        let flow = FlowReport {
            name: format!("tenant-{at}"),
            kept,
            missed_by_machine: kept == Some(false) && at % 2 == 0,
            min_rate_pps: Some(1e6),
            rate_kept: kept,
            ..report.flows[0].clone()
        };
        report.flows.push(flow);
    }
    report.ports.push(PortReport {
        name: "east".to_owned(),
        kind: "af_packet".into(),
        sent: 1_234_567,
        ..PortReport::default()
    });
    report.ports[0].skipped.insert("oversize".to_owned(), 3);
    report.packets.dropped.insert("east.refused".to_owned(), 1_200);
    let mut view = View { recent: Some(report.clone()), whole: Some(report), ..View::default() };
    view.events = events(&[
        NewEvent::new(EventName::Started, "the worker runs on core 1").with("workers", 1),
        NewEvent::new(EventName::ReloadAccepted, "changed to edge.yaml in 3.2 ms").with("file", "edge.yaml"),
        NewEvent::new(
            EventName::Oversize,
            "port 'east': a frame of 9000 bytes is longer than a packet holds and is lost",
        )
        .with("port", "east")
        .with("count", 7),
        NewEvent::new(EventName::LinkUp, "port 'in': its interface is up again").with("port", "in"),
        NewEvent::new(EventName::LinkDown, NO_CARRIER).with("port", "east").with("why", "no_carrier"),
    ]);
    view.events[0].time.replace_range(..10, "2026-11-24");
    view.events[1].time.replace_range(..10, "2026-11-24");
    view.today = "2026-11-25".to_owned();
    view
}

const NO_CARRIER: &str = "port 'east': its interface has no carrier: nothing is at its other end";

/// Numbers events as a run does, one second apart.
fn events(all: &[NewEvent]) -> Vec<forebay_protocol::event::Event> {
    let log = EventLog::default();
    all.iter().for_each(|event| log.record(event.clone()));
    let mut events = log.recent(all.len());
    let times = (1..).map(|second| format!("2026-11-25T22:04:{second:02}.500Z"));
    events.iter_mut().zip(times).for_each(|(event, time)| event.time = time);
    events
}

/// Draws a screen of this size, and returns its text without trailing spaces.
fn screen(view: &View, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory");
    terminal.draw(|frame| view.draw(frame)).expect("memory");
    let lines = terminal.backend().to_string();
    lines.lines().map(|line| line.trim_matches('"').trim_end().to_owned() + "\n").collect()
}

/// Joins wrapped lines into sentences.
fn unwrapped(screen: &str) -> String {
    screen.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Every page on a small, a usual and a large terminal.
#[test]
fn every_view_fits_every_screen() {
    for (width, height) in [(40, 12), (80, 24), (200, 50)] {
        let mut view = busy_view();
        let mut all = String::new();
        for key in ['1', '2', '3', '4', '5', '0', '?'] {
            view.handle_key(KeyCode::Char(key), false, 5);
            all += &format!("=== {key}\n{}", screen(&view, width, height));
        }
        insta::assert_snapshot!(format!("{width}x{height}"), all);
    }
}

/// Text without room above the tables is complete on a page of its own, which scrolls.
#[test]
fn no_explanation_is_cut() {
    let explanations = [
        "Cores 1, 2, 3 ran other work for up to 38 % of the last interval (other processes): delays include",
        "video cannot keep 100.0 us (5 % in reserve): it takes 300.0 us although it waits for no batch",
        "optimal every 100.0 ms, guard 5 %: 4 of 123 periods missed an objective",
        "last: m0 8 -> 14 and 1 more: the least load within all objectives (12.3 s)",
    ];
    for (width, height) in [(40, 12), (80, 24)] {
        let mut view = busy_view();
        assert!(screen(&view, width, height).contains("more: press 0"), "{}", screen(&view, width, height));
        view.handle_key(KeyCode::Char('0'), false, 5);
        // Scroll line by line: each screen's first line is the next line of the text.
        let mut text = String::new();
        for _ in 0..60 {
            text += &format!("{} ", screen(&view, width, height).lines().next().expect("a line"));
            view.handle_key(KeyCode::Down, false, 5);
        }
        text += &screen(&view, width, height);
        let text = unwrapped(&text);
        for expected in explanations {
            assert!(text.contains(expected), "'{expected}' is not in\n{text}");
        }
    }
    let large = unwrapped(&screen(&busy_view(), 200, 50));
    for expected in explanations {
        assert!(large.contains(expected), "'{expected}' is not in\n{large}");
    }
}

#[test]
fn modules_flows_and_totals_are_shown() {
    let shown = screen(&view(3), 120, 30);
    for expected in [
        "gateway: 2.0 s on core 1, busy 50.0 %",
        "packets/s: in 1.000M",
        "m2",
        "12.5",
        "video",
        "20.00 us",
        "missed",
        "lost at ports 4",
        "objectives: 0 of 1 kept, 1 MISSED: video",
    ] {
        assert!(shown.contains(expected), "'{expected}' is not in\n{shown}");
    }
}

#[test]
fn a_controller_is_shown_with_its_last_decision_and_what_nothing_keeps() {
    let mut view = view(3);
    view.recent.as_mut().expect("a report").control = Some(crate::control::tests::control());
    let shown = unwrapped(&screen(&view, 130, 40));
    for expected in [
        "optimal every 100.0 ms, guard 5 %: 4 of 123 periods missed an objective; ",
        "it decides in 12.00 us (at most 90.00 us)",
        "last: m0 8 -> 14 and 1 more: the least load within all objectives (12.3 s)",
        "video cannot keep 100.0 us (5 % in reserve): it takes 300.0 us although it waits for no batch",
    ] {
        assert!(shown.contains(expected), "'{expected}' is not in\n{shown}");
    }
    let control = view.recent.as_mut().and_then(|report| report.control.as_mut()).expect("set above");
    let unkept = control.unkept[0].clone();
    control.unkept.resize(9, unkept);
    control.trouble = Some("a worker does not respond".to_owned());
    let shown = screen(&view, 130, 40);
    for expected in ["and 6 more flows", "a worker does not respond", "m2", "missed"] {
        assert!(shown.contains(expected), "'{expected}' is not in\n{shown}");
    }
}

/// A late flow is red; it is yellow if the machine was busy, because that is not the pipeline's fault.
#[test]
fn delays_above_an_objective_are_red_and_yellow_where_the_machine_is_the_cause() {
    let colour_of = |kept, missed_by_machine| {
        let mut view = view(1);
        let flow = &mut view.recent.as_mut().expect("a report").flows[0];
        (flow.kept, flow.missed_by_machine) = (Some(kept), missed_by_machine);
        let mut terminal = Terminal::new(TestBackend::new(120, 40)).expect("memory");
        terminal.draw(|frame| view.draw(frame)).expect("memory");
        let buffer = terminal.backend().buffer();
        let text = |column: u16, row: u16, length: u16| -> String {
            (column..column + length).filter_map(|at| buffer.cell((at, row))).map(|cell| cell.symbol()).collect()
        };
        let row = (0..40u16).find(|row| text(0, *row, 5) == "video").expect("the flow");
        let column = (0..120u16).find(|column| text(*column, row, 8) == "30.00 us").expect("its delay");
        buffer[(column, row)].fg
    };
    use ratatui::style::Color;
    assert_eq!(
        (colour_of(false, false), colour_of(true, false), colour_of(false, true)),
        (Color::Red, Color::Green, Color::Yellow)
    );
}

/// Regression: only the first of several workers was shown, and losses at ports only as a total.
#[test]
fn losses_of_the_interval_and_every_worker_are_shown() {
    let mut view = view(1);
    assert!(screen(&view, 120, 30).contains("lost at in 2 pps"), "{}", screen(&view, 120, 30));
    let recent = view.recent.as_mut().expect("a report");
    let first = recent.workers[0].clone();
    recent.workers.push(WorkerReport { id: 1, core: Some(0), busy: 0.015, ..first });
    recent.ports[0].dropped = 0;
    let shown = screen(&view, 120, 30);
    for expected in ["gateway: 2.0 s on cores 1, 0, ", "busy 50.0/1.5 %", "lost at ports 4", "no losses at ports"] {
        assert!(shown.contains(expected), "'{expected}' is not in\n{shown}");
    }
}

#[test]
fn hundreds_of_modules_are_scrolled_sorted_and_filtered() {
    let mut view = view(355);
    assert!(screen(&view, 120, 30).contains("m354"), "the heaviest comes first");
    view.handle_key(KeyCode::Char('s'), false, 10);
    let shown = screen(&view, 120, 30);
    assert!(shown.contains("m0 ") && !shown.contains("m354"), "{shown}");
    (0..5).for_each(|_| assert!(!view.handle_key(KeyCode::PageDown, false, 10)));
    assert!(screen(&view, 120, 30).contains("modules 51-"));
    view.handle_key(KeyCode::End, false, 10);
    assert!(screen(&view, 120, 30).contains("m354"));
    view.handle_key(KeyCode::Down, false, 10);
    assert_eq!(view.scroll, 354, "no further than the last");
    for key in ['/', '3', '5', '1', 'q'] {
        view.handle_key(KeyCode::Char(key), false, 10);
    }
    assert!(screen(&view, 120, 30).contains("modules: none of 355 with '351q'"), "letters are typed, `q` too");
    view.handle_key(KeyCode::Backspace, false, 10);
    view.handle_key(KeyCode::Enter, false, 10);
    let shown = screen(&view, 120, 30);
    assert!(shown.contains("m351") && !shown.contains("m354"), "{shown}");
    view.handle_key(KeyCode::Esc, false, 10);
    assert!(screen(&view, 120, 30).contains("m0 "), "all rows again, from the first");
}

/// A reload to flows without rates, or to fewer workers, removes columns, even the chosen one.
#[test]
fn a_chosen_column_that_a_reload_takes_away_sorts_nothing() {
    let mut view = busy_view();
    view.handle_key(KeyCode::Char('2'), false, 10);
    view.handle_key(KeyCode::Char('<'), false, 10);
    assert!(screen(&view, 200, 50).contains("rate▼"), "{}", screen(&view, 200, 50));
    let fewer = report(3);
    (view.recent, view.whole) = (Some(fewer.clone()), Some(fewer));
    let shown = screen(&view, 200, 50);
    assert!(shown.contains("video") && !shown.contains("rate▼") && !shown.contains("rate "), "{shown}");
    view.handle_key(KeyCode::Char('r'), false, 10);
    assert!(screen(&view, 200, 50).contains("video"));
    view.handle_key(KeyCode::Char('>'), false, 10);
    assert!(screen(&view, 200, 50).contains("flow▲"), "{}", screen(&view, 200, 50));
}

#[test]
fn columns_are_sorted_by_the_keys_for_them() {
    let mut view = view(12);
    assert!(screen(&view, 120, 30).contains("CPU▼"));
    view.handle_key(KeyCode::Char('>'), false, 10);
    assert!(screen(&view, 120, 30).contains("packets/s▼"));
    (0..3).for_each(|_| assert!(!view.handle_key(KeyCode::Char('<'), false, 10)));
    view.handle_key(KeyCode::Char('r'), false, 10);
    let shown = screen(&view, 120, 30);
    assert!(shown.contains("module▲") && shown.contains("m9"), "{shown}");
    view.handle_key(KeyCode::Tab, false, 10);
    view.handle_key(KeyCode::Char('>'), false, 10);
    assert!(screen(&view, 120, 30).contains("flow▼"), "each table has an order of its own");
    view.handle_key(KeyCode::BackTab, false, 10);
    assert!(screen(&view, 120, 30).contains("module▲"));
}

/// Regression: a link that went down while the table was on the terminal was reported only after the run.
#[test]
fn the_last_events_are_shown_and_cannot_act_on_the_terminal() {
    let mut view = view(3);
    let hostile = "\u{1b}[2J\r\u{202e}a\nb\u{2028}";
    view.events = events(&[
        NewEvent::new(EventName::Listening, "`forebay top` reaches it"),
        NewEvent::new(EventName::ReloadRefused, format!("the running configuration stays: {hostile}")),
        NewEvent::new(EventName::LinkDown, NO_CARRIER).with("port", "east"),
    ]);
    view.today = "2026-11-25".to_owned();
    let shown = screen(&view, 100, 30);
    let refused = "22:04:02Z reload_refused: the running configuration stays: \\u001b[2J\\u000d\\u202ea; b\\u2028";
    for expected in [refused, &format!("22:04:03Z link_down: {NO_CARRIER}")] {
        assert!(shown.contains(expected), "'{expected}' is not in\n{shown}");
    }
    assert!(!shown.contains("listening"), "{shown}");
    // The last event is visible on the smallest screen, too.
    let mut busy = busy_view();
    assert!(screen(&busy, 40, 12).contains("22:04:05Z link_down east"), "{}", screen(&busy, 40, 12));
    busy.handle_key(KeyCode::Char('0'), false, 5);
    busy.handle_key(KeyCode::End, false, 5);
    let text = unwrapped(&screen(&busy, 80, 24));
    for expected in [&format!("22:04:05Z link_down: {NO_CARRIER}"), "2026-11-24 22:04:02Z reload_accepted", ", 7 times"]
    {
        assert!(text.contains(expected), "'{expected}' is not in\n{text}");
    }
}

/// With `top`, `q` leaves the view, and the pipeline continues.
#[test]
fn the_effect_of_q_is_shown() {
    for (quit, expected) in [(Quit::EndRun, "q end"), (Quit::Leave, "q leave")] {
        assert!(screen(&View { quit, ..View::default() }, 120, 30).contains(expected));
        assert!(screen(&View { quit, ..view(3) }, 120, 30).contains(&format!("{expected}   ? help")));
    }
}

#[test]
fn a_small_screen_shows_as_much_as_fits() {
    for (width, height) in [(1, 1), (20, 4), (80, 6), (500, 3), (150, 8)] {
        let mut view = busy_view();
        for key in ['1', '2', '3', '4', '5', '0', '?'] {
            view.handle_key(KeyCode::Char(key), false, 1);
            let text = screen(&view, width, height);
            assert!(width == 1 || text.split_whitespace().count() > 1, "page {key}, {width} x {height}:\n{text}");
        }
        let before = screen(&View::default(), width, height);
        assert!(width == 1 || !before.trim().is_empty(), "{width} x {height}:\n{before}");
    }
}

/// Regression: Esc ended a run at once, and so did a `q` for another window.
#[test]
fn q_asks_once_before_it_ends_a_run_and_escape_ends_none() {
    let mut view = view(1);
    assert!(!view.handle_key(KeyCode::Esc, false, 1));
    for other in [KeyCode::Esc, KeyCode::Char('s'), KeyCode::Down] {
        assert!(!view.handle_key(KeyCode::Char('q'), false, 1));
        for (width, height) in [(80, 24), (40, 12)] {
            assert!(unwrapped(&screen(&view, width, height)).contains("q again ends the run, any other key goes on"));
        }
        assert!(!view.handle_key(other, false, 1));
        assert!(!screen(&view, 80, 24).contains("q again"), "another key takes it back");
    }
    assert!(!view.handle_key(KeyCode::Char('q'), false, 1) && view.handle_key(KeyCode::Char('q'), false, 1));
    assert!(view.handle_key(KeyCode::Char('c'), true, 1) && !view.handle_key(KeyCode::Char('c'), false, 1));
    let mut watcher = View { quit: Quit::Leave, ..self::view(1) };
    assert!(watcher.handle_key(KeyCode::Char('q'), false, 1) && watcher.handle_key(KeyCode::Esc, false, 1));
}
