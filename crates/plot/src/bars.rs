//! Horizontal bar charts. The bars are horizontal, so that long names have room.

use crate::chart::{TITLE, WIDTH, WORDS, rows};
use crate::palette::{Colour, FAINT, GRID, INK, series};
use crate::pen::{Letters, Pen, Point, Side, drawing, shortened, width};
use crate::scale::Scale;
use crate::{PlotError, engineering};

/// A group of bars in one colour: one value for each row of the chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// The name in the legend.
    pub name: String,
    /// The value of each row. `None` is an unknown value, for which the chart shows `n/a`. There must be as many values
    /// as rows.
    pub values: Vec<Option<f64>>,
    /// For each row, true if the value is void: it has no meaning, and its bar is hatched. A missing entry means that
    /// the value is not void.
    pub void: Vec<bool>,
}

/// A bar chart with a row for each name in `places`, from top to bottom.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bars {
    /// The title of the chart.
    pub title: String,
    /// The label of the value axis, with the unit.
    pub label: String,
    /// The name of each row.
    pub places: Vec<String>,
    /// The groups of values.
    pub groups: Vec<Group>,
    /// True if the values of all groups are stacked in one bar per row. Otherwise, each group has its own bar in a row.
    pub stacked: bool,
    /// The ranges that another source states, for comparison. `None` if there is no such source.
    pub reference: Option<Reference>,
}

/// The range that another source states for each row. It is drawn as a bracket over the bars.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// The name in the legend.
    pub name: String,
    /// The lower and upper end for each row, which may be equal. `None` or a missing entry means that the source states
    /// no range.
    pub ranges: Vec<Option<(f64, f64)>>,
}

/// The height of a bar, in pixels.
const BAR: f64 = 15.0;
/// The horizontal distance between the lines of a hatched bar, in pixels.
const HATCH: f64 = 5.0;
/// The distance between rows, in pixels.
const GAP: f64 = 9.0;
/// The names of the rows take at most this fraction of the figure's width. Longer names are shortened.
const NAMES: f64 = 0.55;

/// Draws a void bar: its outline, filled with slanted lines. The points are its upper left and lower right corners.
fn hatch(pen: &Pen<'_>, ((left, top), (right, bottom)): (Point, Point), colour: Colour) {
    pen.line(&[(left, top), (right, top), (right, bottom), (left, bottom), (left, top)], colour, 1.0);
    let height = bottom - top;
    let mut foot = left - height + HATCH;
    while foot < right {
        // Each line goes up to the right. It is cut at the ends of the bar.
        let (from, to) = (foot.max(left), (foot + height).min(right));
        pen.line(&[(from, bottom - (from - foot)), (to, bottom - (to - foot))], colour, 1.0);
        foot += HATCH;
    }
}

/// Draws a range: a vertical line at each end, and a horizontal line between them. The points are the upper left and
/// lower right corners.
fn bracket(pen: &Pen<'_>, ((left, top), (right, bottom)): (Point, Point)) {
    for x in [left, right] {
        pen.line(&[(x, top), (x, bottom)], INK, 1.5);
    }
    let middle = f64::midpoint(top, bottom);
    pen.line(&[(left, middle), (right, middle)], INK, 1.5);
}

impl Bars {
    /// Returns the chart as an SVG document.
    ///
    /// # Errors
    /// Returns [`PlotError`] if there are no places or groups, if a list has the wrong length, or if a value is
    /// negative or not finite.
    pub fn svg(&self) -> Result<String, PlotError> {
        self.check()?;
        let scale = Scale::around([0.0, self.longest()].into_iter(), false, (Some(0.0), None), 8);
        let places: Vec<String> = self.places.iter().map(|name| shortened(name, WORDS, WIDTH * NAMES)).collect();
        let left = 16.0 + places.iter().map(|name| width(name, WORDS)).fold(0.0, f64::max);
        let right = WIDTH - if self.reference.is_some() { 110.0 } else { 70.0 };
        let is_hatched = self.groups.iter().any(|group| group.void.contains(&true));
        let mut names: Vec<_> = self.groups.iter().map(|group| group.name.as_str()).collect();
        names.extend(self.reference.iter().map(|reference| reference.name.as_str()));
        names.extend(is_hatched.then_some("void: carries no meaning"));
        let legend = if names.len() > 1 { rows(&names, right - left) } else { Vec::new() };
        let top = 40.0 + legend.len() as f64 * 18.0;
        let bars = if self.stacked { 1.0 } else { self.groups.len() as f64 };
        let place = bars * BAR + GAP;
        let bottom = top + place * self.places.len() as f64;
        let at = |value: f64| left + scale.place(value) * (right - left);
        let letters = |colour: Colour, side| Letters { size: WORDS, colour, side, upwards: false };
        let names_of = &names;
        Ok(drawing((WIDTH, bottom + 46.0), |pen| {
            pen.text(&self.title, (left, 16.0), Letters { size: TITLE, ..letters(INK, Side::Right) });
            for (row, names) in legend.iter().enumerate() {
                for (number, start) in names {
                    let (x, y) = (left + start, 38.0 + row as f64 * 18.0);
                    let (from, to) = ((x, y - 5.0), (x + 22.0, y + 5.0));
                    match (*number, &self.reference) {
                        (group, _) if group < self.groups.len() => pen.rectangle(from, to, series(group)),
                        (other, Some(_)) if other == self.groups.len() => bracket(pen, (from, to)),
                        _ => hatch(pen, (from, to), FAINT),
                    }
                    pen.text(names_of[*number], (x + 28.0, y), letters(INK, Side::Right));
                }
            }
            for (value, name) in scale.marks(8) {
                pen.line(&[(at(value), top - 4.0), (at(value), bottom)], GRID, 1.0);
                pen.text(&name, (at(value), bottom + 12.0), letters(FAINT, Side::Middle));
            }
            for (number, name) in places.iter().enumerate() {
                let upper = top + place * number as f64;
                pen.text(name, (left - 8.0, upper + (place - GAP) / 2.0), letters(INK, Side::Left));
                let range = self.reference.as_ref().and_then(|reference| *reference.ranges.get(number)?);
                // Returns the x position, in pixels, of the label of a bar that ends at the value `end`. A label that
                // would cross the range is written to the right of the range.
                let beside = |end: f64, label: &str| {
                    let (from, room) = (at(end) + 5.0, width(label, WORDS) + 5.0);
                    let crossed = range.is_some_and(|(least, most)| at(least) < from + room && at(most) > from - 5.0);
                    range.filter(|_| crossed).map_or(from, |(_, most)| at(most) + 6.0)
                };
                let (mut end, mut taken) = (0.0, left);
                for (which, group) in self.groups.iter().enumerate() {
                    let height = if self.stacked { upper } else { upper + which as f64 * BAR };
                    let Some(value) = group.values[number] else {
                        if !self.stacked {
                            pen.text("n/a", (left + 5.0, height + BAR / 2.0), letters(FAINT, Side::Right));
                        }
                        continue;
                    };
                    let start = if self.stacked { end } else { 0.0 };
                    end = start + value;
                    let bar = ((at(start), height), (at(end), height + BAR - 2.0));
                    if group.void.get(number) == Some(&true) {
                        hatch(pen, bar, series(which));
                    } else {
                        pen.rectangle(bar.0, bar.1, series(which));
                    }
                    if !self.stacked {
                        let label = engineering(value);
                        let place = (beside(end, &label), height + BAR / 2.0 - 1.0);
                        pen.text(&label, place, letters(FAINT, Side::Right));
                        taken = taken.max(place.0 + width(&label, WORDS));
                    }
                }
                if let Some((least, most)) = range {
                    bracket(pen, ((at(least), upper - 2.0), (at(most), upper + place - GAP)));
                    let ends = if least == most { engineering(least) } else { format!("{least}–{most}") };
                    let after = (taken.max(at(most)) + 8.0, upper + (place - GAP) / 2.0 - 1.0);
                    pen.text(&ends, after, letters(INK, Side::Right));
                }
                if self.stacked {
                    let known = self.groups.iter().any(|group| group.values[number].is_some());
                    let label = if known { engineering(end) } else { "n/a".to_owned() };
                    pen.text(&label, (at(end) + 5.0, upper + BAR / 2.0 - 1.0), letters(FAINT, Side::Right));
                }
            }
            pen.line(&[(left, top - 4.0), (left, bottom)], INK, 1.0);
            pen.text(&self.label, (f64::midpoint(left, right), bottom + 32.0), letters(INK, Side::Middle));
        }))
    }

    /// Checks the lengths of the lists and the values, and returns the errors of [`svg`](Self::svg).
    fn check(&self) -> Result<(), PlotError> {
        if self.places.is_empty() || self.groups.is_empty() {
            return Err(PlotError::Empty(self.title.clone()));
        }
        for group in &self.groups {
            if group.values.len() != self.places.len() {
                return Err(PlotError::Length {
                    figure: self.title.clone(),
                    name: group.name.clone(),
                    values: group.values.len(),
                    places: self.places.len(),
                });
            }
            if let Some(value) = group.values.iter().flatten().find(|value| !value.is_finite() || **value < 0.0) {
                return Err(PlotError::Place {
                    figure: self.title.clone(),
                    axis: self.label.clone(),
                    value: *value,
                    allowed: " from 0",
                });
            }
        }
        Ok(())
    }

    /// Returns the largest value of a bar or range, or 1 if all values are 0 or unknown.
    fn longest(&self) -> f64 {
        let of = |number: usize| {
            let values = self.groups.iter().filter_map(|group| group.values[number]);
            if self.stacked { values.sum() } else { values.fold(0.0, f64::max) }
        };
        let stated = self.reference.iter().flat_map(|reference| reference.ranges.iter().flatten().map(|range| range.1));
        let longest = (0..self.places.len()).map(of).chain(stated).fold(0.0, f64::max);
        if longest > 0.0 { longest } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use roxmltree::Document;

    use super::*;

    fn bars(groups: Vec<Vec<Option<f64>>>, stacked: bool) -> Bars {
        let groups: Vec<_> = groups
            .into_iter()
            .enumerate()
            .map(|(at, values)| Group { name: format!("group {at}"), values, ..Group::default() })
            .collect();
        let places = (0..groups[0].values.len()).map(|at| format!("module{at}")).collect();
        Bars {
            title: "Ticks".to_owned(),
            label: "ticks a packet".to_owned(),
            places,
            groups,
            stacked,
            ..Bars::default()
        }
    }

    #[test]
    fn an_unknown_value_is_shown_as_not_available() {
        let svg = bars(vec![vec![Some(12.5), None]], false).svg().expect("it can be drawn");
        assert!(svg.contains("12.5") && svg.contains("n/a") && svg.contains("module1"), "{svg}");
        assert_eq!(svg.matches("<rect").count(), 1, "{svg}");
        let svg = bars(vec![vec![Some(1.0)], vec![Some(2.0)]], true).svg().expect("it can be drawn");
        assert!(svg.contains(">\n3\n<"), "the sum is written: {svg}");
    }

    #[test]
    fn void_bars_are_hatched_and_stated_ranges_are_drawn() {
        let mut drawn = bars(vec![vec![Some(2.0), Some(3.0)]], false);
        let plain = drawn.svg().expect("it can be drawn");
        assert!(plain.matches("<rect").count() == 2 && !plain.contains("void"), "{plain}");
        drawn.groups[0].void = vec![false, true];
        drawn.reference =
            Some(Reference { name: "the paper".to_owned(), ranges: vec![Some((1.5, 2.5)), Some((7.5, 7.5))] });
        let svg = drawn.svg().expect("it can be drawn");
        // One rectangle for the bar and one for its colour in the legend.
        assert!(svg.matches("<rect").count() == 2 && svg.contains("void: carries no meaning"), "{svg}");
        assert!(svg.contains(">\n1.5–2.5\n<") && svg.contains(">\n7.5\n<"), "stated ranges are written: {svg}");
        assert!(svg.contains("the paper") && svg.contains(">\n8\n<"), "the axis goes to the range's end: {svg}");
    }

    /// Regression test: the range of the reference crossed the labels of the bars.
    #[test]
    fn labels_stand_right_of_a_range_that_would_cross_them() {
        let mut drawn = bars(vec![vec![Some(1.4)]], false);
        let place = |drawn: &Bars| {
            let svg = drawn.svg().expect("it can be drawn");
            let (before, _) = svg.split_once(">\n1.4\n<").expect("the label");
            let (_, x) = before.rsplit_once(" x=\"").expect("its position");
            x.split('"').next().and_then(|x| x.parse::<f64>().ok()).expect("a number")
        };
        drawn.reference = Some(Reference { name: "the paper".to_owned(), ranges: vec![Some((2.4, 2.5))] });
        let free = place(&drawn);
        drawn.reference = Some(Reference { name: "the paper".to_owned(), ranges: vec![Some((1.5, 2.5))] });
        assert!(place(&drawn) > free + 100.0, "{} {free}", place(&drawn));
    }

    /// Regression test: long names extended beyond the left side of the figure.
    #[test]
    fn names_stay_inside() {
        let mut long = bars(vec![vec![Some(1.0)]], false);
        for length in [1, 40, 66, 90, 400] {
            long.places[0] = "n".repeat(length);
            let svg = long.svg().expect("it can be drawn");
            assert!(width(&shortened(&long.places[0], WORDS, WIDTH * NAMES), WORDS) <= WIDTH * NAMES);
            assert_eq!(svg.contains('…'), width(&long.places[0], WORDS) > WIDTH * NAMES, "{length}");
        }
    }

    #[test]
    fn an_invalid_chart_is_refused() {
        let error = |bars: &Bars| bars.svg().expect_err("refused").to_string();
        assert_eq!(
            error(&bars(vec![vec![Some(-1.0)]], false)),
            "figure 'Ticks': axis 'ticks a packet': value -1 cannot be drawn: allowed are finite numbers from 0"
        );
        let mut short = bars(vec![vec![Some(1.0), None]], false);
        short.groups[0].values.pop();
        assert_eq!(error(&short), "figure 'Ticks': 'group 0' has 1 values, 2 are required");
        short.groups.clear();
        assert!(error(&short).contains("no points to draw"));
    }

    proptest! {
        #[test]
        fn any_values_give_well_formed_svg(
            values in proptest::collection::vec(proptest::option::of(0.0f64..1e12), 1..9), stacked: bool,
        ) {
            let svg = bars(vec![values.clone(), values], stacked).svg().expect("it can be drawn");
            prop_assert!(Document::parse(&svg).is_ok(), "{}", svg);
        }
    }
}
