//! Draws a figure with two axes: the title, the legend, the names of the events, then the axes and the layers.

use crate::PlotError;
use crate::figure::{Axis, Figure, Layer};
use crate::palette::{Colour, FAINT, GRID, INK, series};
use crate::pen::{Letters, Pen, Point, Side, drawing, width};
use crate::scale::Scale;

/// The width of a figure in pixels. A page shrinks the figure if there is less room.
pub(crate) const WIDTH: f64 = 760.0;
/// The height of the area between the axes, in pixels.
const HEIGHT: f64 = 300.0;
/// The space to the right of the x axis, in pixels. It has room for half of the last mark's name.
const RIGHT: f64 = 24.0;
/// The height of a row of text, in pixels.
const ROW: f64 = 18.0;
/// The font size of titles, in pixels.
pub(crate) const TITLE: f64 = 15.0;
/// The font size of other text, in pixels.
pub(crate) const WORDS: f64 = 12.0;

/// Draws a figure and returns it as SVG. Returns an error as [`Figure::svg`] describes.
pub(crate) fn draw(figure: &Figure) -> Result<String, PlotError> {
    check(figure)?;
    let places: Vec<_> = figure.layers.iter().flat_map(Layer::places).collect();
    let x = scale(&figure.x, places.iter().filter_map(|(x, _)| *x), 8);
    let y = scale(&figure.y, places.iter().filter_map(|(_, y)| *y), 6);
    let marks = y.marks(6);
    let widest = marks.iter().map(|(_, name)| width(name, WORDS)).fold(0.0, f64::max);
    let left = 34.0 + widest;
    let entries = legend(figure);
    let names: Vec<_> = entries.iter().map(|(_, layer)| layer.name()).collect();
    let rows = rows(&names, WIDTH - left - RIGHT);
    let across = |value: f64| left + x.place(value) * (WIDTH - left - RIGHT);
    let words = words(figure, across);
    let events = words.iter().map(|(_, _, row)| row + 1).max().unwrap_or(0) as f64;
    let top = 34.0 + rows.len() as f64 * ROW + events * ROW + 6.0;
    let bottom = top + HEIGHT;
    let frame = Frame { x: &x, y: &y, left, top, bottom };
    Ok(drawing((WIDTH, bottom + 52.0), |pen| {
        pen.text(&figure.title, (left, 16.0), Letters { size: TITLE, colour: INK, side: Side::Right, upwards: false });
        for (row, names) in rows.iter().enumerate() {
            for (number, start) in names {
                let (colour, layer) = entries[*number];
                let at = (left + start, 38.0 + row as f64 * ROW);
                key(pen, layer, colour, at);
                pen.text(layer.name(), (at.0 + 28.0, at.1), letters(INK, Side::Right));
            }
        }
        frame.axes(pen, figure, &marks);
        let colours = colours(figure);
        for (layer, colour) in figure.layers.iter().zip(colours) {
            frame.layer(pen, layer, colour);
        }
        for (at, name, row) in &words {
            let height = top - 8.0 - *row as f64 * ROW;
            pen.dashes((*at, height + 8.0), (*at, bottom), FAINT, 1.0);
            pen.text(name, (*at, height), letters(INK, Side::Middle));
        }
        pen.line(&[(left, bottom), (WIDTH - RIGHT, bottom)], INK, 1.0);
    }))
}

/// Returns the appearance of normal text.
fn letters(colour: Colour, side: Side) -> Letters {
    Letters { size: WORDS, colour, side, upwards: false }
}

/// Checks that every value lies on its axis and that the figure has at least one point.
fn check(figure: &Figure) -> Result<(), PlotError> {
    let on = |axis: &Axis, value: f64| {
        let (low, high) = axis.ends;
        let inside = low.is_none_or(|low| value >= low) && high.is_none_or(|high| value <= high);
        if value.is_finite() && (!axis.log || value > 0.0) && inside {
            return Ok(());
        }
        let allowed = match axis {
            Axis { log: true, .. } => " above 0",
            Axis { ends: (None, None), .. } => "",
            _ => " between its ends",
        };
        Err(PlotError::Place { figure: figure.title.clone(), axis: axis.label.clone(), value, allowed })
    };
    let mut any = false;
    for (x, y) in figure.layers.iter().flat_map(Layer::places) {
        any = true;
        x.map_or(Ok(()), |x| on(&figure.x, x))?;
        y.map_or(Ok(()), |y| on(&figure.y, y))?;
    }
    for layer in &figure.layers {
        if let Layer::Reference { from, to, .. } = layer {
            for (x, y) in [from, to] {
                // A reference may lie outside of the ends of an axis: it is cut off there.
                let bare = |axis: &Axis| Axis { ends: (None, None), ..axis.clone() };
                on(&bare(&figure.x), *x)?;
                on(&bare(&figure.y), *y)?;
            }
        }
    }
    if any { Ok(()) } else { Err(PlotError::Empty(figure.title.clone())) }
}

/// Returns the scale of an axis for these values, with about `marks` marks. The scale of a named axis does not depend
/// on the values: it contains all names, and half a unit of space at each end.
fn scale(axis: &Axis, values: impl Iterator<Item = f64>, marks: usize) -> Scale {
    if axis.names.is_empty() {
        return Scale::around(values, axis.log, axis.ends, marks);
    }
    Scale::between(-0.5, axis.names.len() as f64 - 0.5)
}

/// Returns a colour for each layer. A band has the colour of the last line, points or steps before it. Events, levels
/// and references are grey.
fn colours(figure: &Figure) -> Vec<Colour> {
    let mut next = 0;
    let mut of = |layer: &Layer| match layer {
        Layer::Band { .. } => series(usize::saturating_sub(next, 1)),
        Layer::Event { .. } | Layer::Level { .. } | Layer::Reference { .. } => FAINT,
        _ => {
            next += 1;
            series(next - 1)
        }
    };
    figure.layers.iter().map(&mut of).collect()
}

/// Returns the layers of the legend with their colours. A figure with only one named layer has no legend, so the result
/// is empty.
fn legend(figure: &Figure) -> Vec<(Colour, &Layer)> {
    let all = colours(figure).into_iter().zip(&figure.layers);
    let named: Vec<_> =
        all.filter(|(_, layer)| !matches!(layer, Layer::Event { .. }) && !layer.name().is_empty()).collect();
    if named.len() > 1 { named } else { Vec::new() }
}

/// Arranges the names of a legend in rows that are at most `room` pixels wide. Each element of a row has the index of a
/// name, and the distance of its symbol from the start of the row, in pixels. A name that is longer than `room` has its
/// own row.
pub(crate) fn rows(names: &[&str], room: f64) -> Vec<Vec<(usize, f64)>> {
    let mut rows: Vec<Vec<(usize, f64)>> = Vec::new();
    let mut used = f64::INFINITY;
    for (number, name) in names.iter().enumerate() {
        let wide = 28.0 + width(name, WORDS) + 18.0;
        if used + wide > room {
            rows.push(Vec::new());
            used = 0.0;
        }
        if let Some(row) = rows.last_mut() {
            row.push((number, used));
        }
        used += wide;
    }
    rows
}

/// Returns the x position in pixels and the name of each event, and its row above the axes, from 0. The rows are chosen
/// so that names do not overlap. `across` converts a value to a position.
fn words(figure: &Figure, across: impl Fn(f64) -> f64) -> Vec<(f64, String, usize)> {
    let mut ends: Vec<f64> = Vec::new();
    let mut events: Vec<(f64, &str)> = Vec::new();
    for layer in &figure.layers {
        if let Layer::Event { name, x } = layer {
            events.push((across(*x), name));
        }
    }
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    let place = |(at, name): (f64, &str)| {
        let half = width(name, WORDS) / 2.0 + 4.0;
        let row = ends.iter().position(|end| *end <= at - half).unwrap_or(ends.len());
        if row == ends.len() {
            ends.push(0.0);
        }
        ends[row] = at + half;
        (at, name.to_owned(), row)
    };
    events.into_iter().map(place).collect()
}

/// Draws the symbol of a layer before its name in the legend.
fn key(pen: &Pen<'_>, layer: &Layer, colour: Colour, (x, y): Point) {
    match layer {
        Layer::Line { .. } => {
            pen.line(&[(x, y), (x + 22.0, y)], colour, 2.0);
            pen.dot((x + 11.0, y), 3.0, colour);
        }
        Layer::Points { .. } => pen.dot((x + 11.0, y), 3.0, colour),
        Layer::Steps { .. } => pen.line(&[(x, y), (x + 22.0, y)], colour, 2.0),
        Layer::Band { .. } => {
            pen.area(&[(x, y - 5.0), (x + 22.0, y - 5.0), (x + 22.0, y + 5.0), (x, y + 5.0)], colour, 0.25);
        }
        _ => pen.dashes((x, y), (x + 22.0, y), colour, 1.5),
    }
}

/// The area between the axes, in pixels.
struct Frame<'s> {
    /// The scale of the x axis.
    x: &'s Scale,
    /// The scale of the y axis.
    y: &'s Scale,
    /// The position of the y axis.
    left: f64,
    /// The upper end of the area.
    top: f64,
    /// The position of the x axis.
    bottom: f64,
}

impl Frame<'_> {
    /// Returns the position of a point of the figure in pixels.
    fn at(&self, (x, y): Point) -> Point {
        let room = WIDTH - RIGHT - self.left;
        (self.left + self.x.place(x) * room, self.bottom - self.y.place(y) * (self.bottom - self.top))
    }

    /// Draws the grid, the marks and the labels.
    fn axes(&self, pen: &Pen<'_>, figure: &Figure, marks: &[(f64, String)]) {
        let Self { left, top, bottom, .. } = *self;
        let right = WIDTH - RIGHT;
        for (value, name) in marks {
            let height = bottom - self.y.place(*value) * (bottom - top);
            pen.line(&[(left, height), (right, height)], GRID, 1.0);
            pen.text(name, (left - 7.0, height), letters(FAINT, Side::Left));
        }
        for (value, name) in self.marks_across(&figure.x) {
            let at = left + self.x.place(value) * (right - left);
            pen.line(&[(at, bottom), (at, bottom + 5.0)], FAINT, 1.0);
            pen.text(&name, (at, bottom + 15.0), letters(FAINT, Side::Middle));
        }
        let middle = f64::midpoint(left, right);
        pen.text(&figure.x.label, (middle, bottom + 38.0), letters(INK, Side::Middle));
        let upwards = Letters { upwards: true, ..letters(INK, Side::Middle) };
        pen.text(&figure.y.label, (13.0, f64::midpoint(top, bottom)), upwards);
    }

    /// Returns the marks of the x axis: values with names. If a named axis has too little room for all names, returns
    /// every n-th name.
    fn marks_across(&self, axis: &Axis) -> Vec<(f64, String)> {
        if axis.names.is_empty() {
            return self.x.marks(8);
        }
        let short = |name: &String| {
            let letters: Vec<char> = name.chars().collect();
            if letters.len() <= 14 { name.clone() } else { letters[..13].iter().chain(['…'].iter()).collect() }
        };
        let names: Vec<String> = axis.names.iter().map(short).collect();
        let widest = names.iter().map(|name| width(name, WORDS) + 10.0).fold(1.0, f64::max);
        let fit = ((WIDTH - RIGHT - self.left) / widest).floor().max(1.0) as usize;
        let every = names.len().div_ceil(fit);
        names.into_iter().enumerate().step_by(every).map(|(at, name)| (at as f64, name)).collect()
    }

    /// Draws a layer.
    fn layer(&self, pen: &Pen<'_>, layer: &Layer, colour: Colour) {
        match layer {
            Layer::Line { points, .. } => {
                let points: Vec<_> = points.iter().map(|point| self.at(*point)).collect();
                pen.line(&points, colour, 2.0);
                points.into_iter().for_each(|point| pen.dot(point, 2.6, colour));
            }
            Layer::Points { points, .. } => {
                points.iter().for_each(|point| pen.dot(self.at(*point), 3.0, colour));
            }
            Layer::Steps { points, .. } => {
                let mut way: Vec<Point> = Vec::new();
                for point in points {
                    let at = self.at(*point);
                    way.extend(way.last().map(|(_, y)| (at.0, *y)));
                    way.push(at);
                }
                // The last value is extended by the average length of a step, but not beyond the axis.
                if let (Some(first), Some(last)) = (way.first().copied(), way.last().copied()) {
                    let more = (last.0 - first.0) / points.len().max(2) as f64;
                    way.push(((last.0 + more).min(WIDTH - RIGHT), last.1));
                }
                pen.line(&way, colour, 2.0);
            }
            Layer::Band { ranges, .. } => {
                let low = ranges.iter().map(|(x, low, _)| self.at((*x, *low)));
                let high = ranges.iter().rev().map(|(x, _, high)| self.at((*x, *high)));
                pen.area(&low.chain(high).collect::<Vec<_>>(), colour, 0.2);
            }
            Layer::Reference { from, to, .. } => {
                if let Some((from, to)) = self.cut(self.at(*from), self.at(*to)) {
                    pen.dashes(from, to, colour, 1.5);
                }
            }
            Layer::Level { y, .. } => {
                let height = self.at((self.x.ends().0, *y)).1;
                pen.dashes((self.left, height), (WIDTH - RIGHT, height), colour, 1.5);
            }
            // `draw` draws an event together with its name.
            Layer::Event { .. } => {}
        }
    }

    /// Returns the part of a line that lies between the axes (Liang and Barsky, 1984), or `None` if the whole line lies
    /// outside.
    fn cut(&self, from: Point, to: Point) -> Option<(Point, Point)> {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let right = WIDTH - RIGHT;
        let sides =
            [(-dx, from.0 - self.left), (dx, right - from.0), (-dy, from.1 - self.top), (dy, self.bottom - from.1)];
        let (mut enter, mut leave) = (0.0f64, 1.0f64);
        for (direction, distance) in sides {
            if direction == 0.0 {
                if distance < 0.0 {
                    return None;
                }
            } else if direction < 0.0 {
                enter = enter.max(distance / direction);
            } else {
                leave = leave.min(distance / direction);
            }
        }
        let at = |share: f64| (from.0 + dx * share, from.1 + dy * share);
        (enter < leave).then(|| (at(enter), at(leave)))
    }
}

#[cfg(test)]
mod tests;
