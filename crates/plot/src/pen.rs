//! Wraps the drawing library. Callers of this module use CSS pixels, with fractions.
//!
//! The library draws with whole numbers. Four units of the library are a pixel, and the size of the SVG element scales
//! the drawing back.

use std::convert::Infallible;

use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Polygon, Rectangle};
use plotters::prelude::SVGBackend;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontTransform, IntoFont, RGBColor, ShapeStyle, TextStyle};

use crate::escape::plain;
use crate::palette::Colour;

/// The number of units of the drawing library per pixel.
const FINE: f64 = 4.0;
/// The average width of a letter of a sans-serif font, as a multiple of the font size.
const LETTER: f64 = 0.56;

/// A point, in pixels from the upper left corner.
pub(crate) type Point = (f64, f64);

/// The position of a text relative to its point: to the right of the point, centred, or to the left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Right,
    Middle,
    Left,
}

/// The appearance of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Letters {
    /// The font size, in pixels.
    pub(crate) size: f64,
    pub(crate) colour: Colour,
    pub(crate) side: Side,
    /// True if the text runs from bottom to top.
    pub(crate) upwards: bool,
}

/// Estimates the width of a text, in pixels.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * LETTER
}

/// Shortens a text to a width of `room` pixels. A shortened text ends in an ellipsis.
pub(crate) fn shortened(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let fits = (room / width("a", size)) as usize;
    text.chars().take(fits.saturating_sub(1)).chain(['…']).collect()
}

/// Draws into an SVG document in memory.
pub(crate) struct Pen<'t> {
    area: DrawingArea<SVGBackend<'t>, plotters::coord::Shift>,
}

/// Converts a point to units of the library.
fn fine((x, y): Point) -> (i32, i32) {
    ((x * FINE).round() as i32, (y * FINE).round() as i32)
}

fn colour([red, green, blue]: Colour, opacity: f64) -> plotters::style::RGBAColor {
    RGBColor(red, green, blue).mix(opacity)
}

/// Unwraps a result of the drawing library. The library returns errors for other backends, but drawing into memory
/// cannot fail.
fn sure<T, E: std::fmt::Debug>(drawn: Result<T, E>) -> Result<T, Infallible> {
    Ok(drawn.expect("drawing into memory cannot fail"))
}

/// Makes a drawing of this size in pixels with `draw`, and returns it as an SVG document.
pub(crate) fn drawing(size: Point, draw: impl FnOnce(&Pen<'_>)) -> String {
    let mut text = String::new();
    let (width, height) = fine(size);
    {
        let area = SVGBackend::with_string(&mut text, (width as u32, height as u32)).into_drawing_area();
        let pen = Pen { area };
        draw(&pen);
        let Ok(()) = sure(pen.area.present());
    }
    let drawn = format!("<svg width=\"{width}\" height=\"{height}\"");
    let shown = format!("<svg width=\"{}\" height=\"{}\"", size.0, size.1);
    text.replacen(&drawn, &shown, 1)
}

impl Pen<'_> {
    /// Returns the style of a line that is `wide` pixels wide.
    fn stroke(tint: Colour, wide: f64, opacity: f64) -> ShapeStyle {
        ShapeStyle { color: colour(tint, opacity), filled: false, stroke_width: (wide * FINE).round() as u32 }
    }

    /// Returns the style of a filled area.
    fn fill(tint: Colour, opacity: f64) -> ShapeStyle {
        ShapeStyle { color: colour(tint, opacity), filled: true, stroke_width: 0 }
    }

    /// Draws a line through these points, `wide` pixels wide.
    pub(crate) fn line(&self, points: &[Point], tint: Colour, wide: f64) {
        let points: Vec<_> = points.iter().copied().map(fine).collect();
        let Ok(()) = sure(self.area.draw(&PathElement::new(points, Self::stroke(tint, wide, 1.0))));
    }

    /// Draws a dashed line, `wide` pixels wide.
    pub(crate) fn dashes(&self, from: Point, to: Point, tint: Colour, wide: f64) {
        const DASH: f64 = 6.0;
        const GAP: f64 = 4.0;
        let length = (to.0 - from.0).hypot(to.1 - from.1);
        let at = |way: f64| {
            let share = if length > 0.0 { (way / length).min(1.0) } else { 0.0 };
            (from.0 + (to.0 - from.0) * share, from.1 + (to.1 - from.1) * share)
        };
        let mut way = 0.0;
        while way < length {
            self.line(&[at(way), at(way + DASH)], tint, wide);
            way += DASH + GAP;
        }
    }

    /// Fills the area inside of an outline. `opacity` is from 0 (invisible) to 1.
    pub(crate) fn area(&self, outline: &[Point], tint: Colour, opacity: f64) {
        let outline: Vec<_> = outline.iter().copied().map(fine).collect();
        let Ok(()) = sure(self.area.draw(&Polygon::new(outline, Self::fill(tint, opacity))));
    }

    /// Fills a rectangle between two opposite corners.
    pub(crate) fn rectangle(&self, from: Point, to: Point, tint: Colour) {
        let Ok(()) = sure(self.area.draw(&Rectangle::new([fine(from), fine(to)], Self::fill(tint, 1.0))));
    }

    /// Draws a filled circle.
    pub(crate) fn dot(&self, at: Point, radius: f64, tint: Colour) {
        let circle = Circle::new(fine(at), (radius * FINE).round() as i32, Self::fill(tint, 1.0));
        let Ok(()) = sure(self.area.draw(&circle));
    }

    /// Draws a text at a point. The point is at half of the text's height. `letters.side` determines the position along
    /// the text.
    pub(crate) fn text(&self, text: &str, at: Point, letters: Letters) {
        let Letters { size, colour: tint, side, upwards } = letters;
        // The library divides the font size by this factor, so the size is multiplied by it here.
        let font = ("sans-serif", size * FINE * 1.24).into_font();
        let font = if upwards { font.transform(FontTransform::Rotate270) } else { font };
        let side = match side {
            Side::Right => HPos::Left,
            Side::Middle => HPos::Center,
            Side::Left => HPos::Right,
        };
        let tint = colour(tint, 1.0);
        let style = TextStyle::from(font).color(&tint).pos(Pos::new(side, VPos::Center));
        // The anchor in the SVG text positions it, so the exact width of the text is not needed.
        let Ok(()) = sure(self.area.draw_text(&plain(text), &style, fine(at)));
    }
}
