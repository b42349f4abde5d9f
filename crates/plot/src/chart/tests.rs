//! Tests that a figure is well-formed, escaped, reproducible and complete, and that an invalid figure is refused.

use proptest::prelude::*;
use roxmltree::Document;

use super::*;

fn line(points: &[(f64, f64)]) -> Layer {
    Layer::Line { name: "line".to_owned(), points: points.to_vec() }
}

fn axes() -> (Axis, Axis) {
    (Axis::new("packets a second"), Axis::new("busy").from_zero())
}

fn texts(svg: &str) -> Vec<String> {
    let document = Document::parse(svg).unwrap_or_else(|error| panic!("{error}\n{svg}"));
    let all = document.descendants().filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "text")));
    all.filter_map(|node| node.text()).map(|text| text.trim().to_owned()).collect()
}

#[test]
fn title_labels_marks_and_legend_are_shown() {
    let (x, y) = axes();
    let figure = Figure::new("Load", x, y)
        .with(line(&[(0.0, 0.0), (2e6, 0.9)]))
        .with(Layer::Band { name: "quartiles".to_owned(), ranges: vec![(0.0, 0.0, 0.1), (2e6, 0.8, 1.0)] })
        .with(Layer::Reference { name: "in proportion".to_owned(), from: (0.0, 0.0), to: (2e6, 2.0) })
        .with(Layer::Event { name: "saturated".to_owned(), x: 1e6 });
    let svg = figure.svg().expect("it can be drawn");
    let texts = texts(&svg);
    for text in ["Load", "packets a second", "busy", "1M", "0.2", "line", "quartiles", "in proportion", "saturated"] {
        assert!(texts.iter().any(|shown| shown == text), "{text} is not among {texts:?}");
    }
    assert_eq!(svg, figure.svg().expect("again"), "the same figure gives the same text");
}

#[test]
fn a_single_layer_needs_no_legend() {
    let (x, y) = axes();
    let svg = Figure::new("Load", x, y).with(line(&[(0.0, 1.0)])).svg().expect("it can be drawn");
    assert!(!texts(&svg).contains(&"line".to_owned()));
}

#[test]
fn an_invalid_figure_is_refused_with_the_value() {
    let (x, y) = axes();
    let error = |figure: Figure| figure.svg().expect_err("refused").to_string();
    let figure = Figure::new("Load", x.clone(), y.clone());
    assert_eq!(error(figure.clone()), "figure 'Load': no points to draw: at least one is required");
    assert_eq!(
        error(figure.with(line(&[(1.0, f64::NAN)]))),
        "figure 'Load': axis 'busy': value NaN cannot be drawn: allowed are finite numbers between its ends"
    );
    let log = Figure::new("Load", x.log(), y.clone()).with(line(&[(0.0, 1.0)]));
    assert!(
        error(log).ends_with("axis 'packets a second': value 0 cannot be drawn: allowed are finite numbers above 0")
    );
    let outside = Figure::new("Load", Axis::new("x").between(0.0, 1.0), y).with(line(&[(2.0, 1.0)]));
    assert!(error(outside).contains("axis 'x': value 2 cannot be drawn"));
}

#[test]
fn a_reference_is_cut_off_at_the_axes() {
    let (x, y) = (Scale::between(0.0, 1.0), Scale::between(0.0, 1.0));
    let frame = Frame { x: &x, y: &y, left: 100.0, top: 0.0, bottom: 300.0 };
    let (from, to) = frame.cut(frame.at((0.0, 0.0)), frame.at((1.0, 2.0))).expect("half of it is inside");
    assert_eq!((from, to.1), (frame.at((0.0, 0.0)), 0.0));
    assert!((to.0 - frame.at((0.5, 0.0)).0).abs() < 1e-9);
    assert_eq!(frame.cut(frame.at((2.0, 0.0)), frame.at((2.0, 1.0))), None);
}

#[test]
fn words_of_events_do_not_cover_each_other() {
    let (x, y) = axes();
    let event = |x: f64| Layer::Event { name: "a long word indeed".to_owned(), x };
    let figure = Figure::new("Load", x, y).with(line(&[(0.0, 0.0), (10.0, 1.0)])).with(event(5.0)).with(event(5.1));
    let words = words(&figure, |x| x * 60.0);
    assert_eq!((words[0].2, words[1].2), (0, 1));
}

proptest! {
    #[test]
    fn any_text_and_points_give_well_formed_svg(
        title in ".{0,30}", name in ".{1,30}",
        points in proptest::collection::vec((-1e9f64..1e9, -1e9f64..1e9), 1..20), named: bool,
    ) {
        let (mut x, y) = (Axis::new(&name), Axis::new("y"));
        let mut points = points;
        if named {
            x = x.named((0..points.len()).map(|at| format!("{name} {at}")));
            points.iter_mut().enumerate().for_each(|(at, point)| point.0 = at as f64);
        }
        let steps = Layer::Steps { name: name.clone(), points: points.clone() };
        let event = Layer::Event { name, x: points[0].0 };
        let line = Layer::Line { name: title.clone(), points };
        let figure = Figure::new(&title, x, y).with(line).with(steps).with(event);
        let svg = figure.svg().expect("it can be drawn");
        prop_assert!(Document::parse(&svg).is_ok(), "{}", svg);
    }
}
