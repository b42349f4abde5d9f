//! Nested boxes: a picture of a hierarchy, for example the packages, caches and cores of a machine.

use crate::PlotError;
use crate::chart::{TITLE, WIDTH, WORDS, rows};
use crate::palette::{Colour, FAINT, INK, series};
use crate::pen::{Letters, Pen, Point, Side, drawing, shortened, width};

/// A figure of nested boxes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Nest {
    /// The title of the figure.
    pub title: String,
    /// The types of boxes, in the order of the legend. The legend omits types without a box.
    pub sorts: Vec<Sort>,
    /// The outermost boxes.
    pub boxes: Vec<Cell>,
    /// The legend entry of void boxes ([`Cell::void`]), for example `free core`. It is omitted if there are no void
    /// boxes.
    pub void: String,
    /// Lines of text below the boxes.
    pub notes: Vec<String>,
    /// A table of numbers below the boxes. `None` for no table.
    pub grid: Option<Grid>,
}

/// A type of box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sort {
    /// The name in the legend.
    pub name: String,
    /// The number of the colour, from 0. After the last colour, the first follows again.
    pub series: usize,
}

/// A box.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The text of the box. If the box contains other boxes, the text is a line above them. Otherwise, the text may
    /// have several lines.
    pub name: String,
    /// The type of the box, as an index of [`Nest::sorts`].
    pub sort: usize,
    /// True if the element of the box is not in use, for example a core outside the CPU set. The box is drawn with
    /// dashes.
    pub void: bool,
    /// The boxes inside this box.
    pub parts: Vec<Cell>,
}

/// A square table of numbers, for example of distances.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grid {
    /// The title above the table.
    pub title: String,
    /// The heads of both the rows and the columns.
    pub heads: Vec<String>,
    /// The numbers as text, row by row. There should be a row for each head, and each row must have a number for each
    /// head.
    pub rows: Vec<Vec<String>>,
}

/// The margin at the left and right of the figure, in pixels.
const MARGIN: f64 = 16.0;
/// The distance between a box and the boxes inside it, in pixels.
const INSET: f64 = 7.0;
/// The distance between boxes, in pixels.
const GAP: f64 = 5.0;
/// The height of a line of text inside a box or grid, in pixels.
const LINE: f64 = 15.0;
/// The width of the smallest box, in pixels.
const LEAST: f64 = 24.0;
/// The width of a column of a grid, in pixels.
const COLUMN: f64 = 38.0;

/// The opacity of boxes that contain others. It is low, so that the colours of the inner boxes are visible.
const OUTER: f64 = 0.05;
/// The opacity of boxes without inner boxes, and of the boxes in the legend.
const INNERMOST: f64 = 0.3;

/// A box with its size and the positions of the boxes inside it.
struct LaidOutBox<'c> {
    cell: &'c Cell,
    /// The lines of the box's text, shortened to the available width.
    lines: Vec<String>,
    /// The width and the height, in pixels.
    size: Point,
    /// The boxes inside this box, with their positions relative to its upper left corner.
    parts: Vec<(Point, LaidOutBox<'c>)>,
}

impl<'c> LaidOutBox<'c> {
    /// Computes the size of a box that is at most `room` pixels wide, and arranges the boxes inside it. The caller may
    /// enlarge the box later.
    fn of(cell: &'c Cell, room: f64) -> Self {
        let inner = room - 2.0 * INSET;
        let lines: Vec<_> = if cell.parts.is_empty() {
            cell.name.split('\n').map(|line| shortened(line, WORDS, inner)).collect()
        } else {
            vec![shortened(&cell.name, WORDS, inner)]
        };
        let text = lines.iter().map(|line| width(line, WORDS)).fold(0.0, f64::max);
        if cell.parts.is_empty() {
            let size = ((text + INSET).max(LEAST), LINE * lines.len() as f64 + 4.0);
            return Self { cell, lines, size, parts: Vec::new() };
        }
        let (parts, (widest, height)) = placed(&cell.parts, inner, (INSET, LINE + 8.0));
        let size = (widest.max(text) + 2.0 * INSET, LINE + 8.0 + height + INSET);
        Self { cell, lines, size, parts }
    }

    /// Draws the box and the boxes inside it. The point is its upper left corner.
    fn draw(&self, pen: &Pen<'_>, sorts: &[Sort], (left, top): Point) {
        let (right, bottom) = (left + self.size.0, top + self.size.1);
        let corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)];
        let tint = sorts.get(self.cell.sort).map_or(FAINT, |sort| series(sort.series));
        outline(
            pen,
            &corners,
            tint,
            (!self.cell.void).then_some(if self.parts.is_empty() { INNERMOST } else { OUTER }),
        );
        let letters = |side| letters(if self.cell.void { FAINT } else { INK }, side);
        if self.parts.is_empty() {
            let middle = f64::midpoint(left, right);
            for (at, line) in self.lines.iter().enumerate() {
                pen.text(line, (middle, top + 2.0 + LINE * (at as f64 + 0.5)), letters(Side::Middle));
            }
            return;
        }
        for line in &self.lines {
            pen.text(line, (left + INSET, top + 4.0 + LINE / 2.0), letters(Side::Right));
        }
        for ((x, y), part) in &self.parts {
            part.draw(pen, sorts, (left + x, top + y));
        }
    }
}

/// Draws a box filled with this opacity, or a dashed box if `filled` is `None`.
fn outline(pen: &Pen<'_>, corners: &[Point; 5], tint: Colour, filled: Option<f64>) {
    let Some(opacity) = filled else {
        for side in corners.windows(2) {
            pen.dashes(side[0], side[1], FAINT, 1.0);
        }
        return;
    };
    pen.area(corners, tint, opacity);
    pen.line(corners, tint, 1.0);
}

/// Returns the appearance of normal text.
fn letters(colour: Colour, side: Side) -> Letters {
    Letters { size: WORDS, colour, side, upwards: false }
}

/// Arranges boxes in rows that are at most `room` pixels wide. `origin` is the upper left corner of the first row.
/// Successive boxes of the same type form a group. Each group starts a new row, and its rows have the same number of
/// boxes, except the last row. Returns the boxes with their positions, and the total size.
fn placed(cells: &[Cell], room: f64, origin: Point) -> (Vec<(Point, LaidOutBox<'_>)>, Point) {
    let (mut parts, mut widest, mut top) = (Vec::new(), 0.0_f64, origin.1);
    for group in cells.chunk_by(|a, b| a.sort == b.sort && a.parts.is_empty() == b.parts.is_empty()) {
        let mut laid: Vec<_> = group.iter().map(|cell| LaidOutBox::of(cell, room)).collect();
        let broadest = laid.iter().map(|part| part.size.0).fold(0.0, f64::max);
        if group[0].parts.is_empty() {
            laid.iter_mut().for_each(|part| part.size.0 = broadest);
        }
        let fits = (((room + GAP) / (broadest + GAP)) as usize).max(1);
        let each = laid.len().div_ceil(laid.len().div_ceil(fits));
        let mut rest = laid.into_iter();
        loop {
            let mut row: Vec<_> = rest.by_ref().take(each).collect();
            if row.is_empty() {
                break;
            }
            let height = row.iter().map(|part| part.size.1).fold(0.0, f64::max);
            let mut left = origin.0;
            for mut part in row.drain(..) {
                part.size.1 = height;
                let next = left + part.size.0 + GAP;
                parts.push(((left, top), part));
                left = next;
            }
            widest = widest.max(left - GAP - origin.0);
            top += height + GAP;
        }
    }
    (parts, (widest, (top - GAP - origin.1).max(0.0)))
}

impl Nest {
    /// Returns the figure as an SVG document.
    ///
    /// # Errors
    /// Returns [`PlotError`] if there are no boxes, or if a row of the grid does not have one number per column.
    pub fn svg(&self) -> Result<String, PlotError> {
        if self.boxes.is_empty() {
            return Err(PlotError::Empty(self.title.clone()));
        }
        if let Some(grid) = &self.grid
            && let Some(row) = grid.rows.iter().find(|row| row.len() != grid.heads.len())
        {
            return Err(PlotError::Length {
                figure: self.title.clone(),
                name: grid.title.clone(),
                values: row.len(),
                places: grid.heads.len(),
            });
        }
        let room = WIDTH - 2.0 * MARGIN;
        let has = |test: &dyn Fn(&Cell) -> bool| self.boxes.iter().any(|cell| cell.has(test));
        let used = self.sorts.iter().enumerate().filter(|(at, _)| has(&|cell| cell.sort == *at && !cell.void));
        let used: Vec<_> = used.map(|(_, sort)| sort).collect();
        let mut names: Vec<_> = used.iter().map(|sort| sort.name.as_str()).collect();
        names.extend(has(&|cell| cell.void).then_some(self.void.as_str()));
        let legend = rows(&names, room);
        let top = 34.0 + legend.len() as f64 * 18.0;
        let (boxes, (_, height)) = placed(&self.boxes, room, (MARGIN, top));
        let below = top + height + 16.0;
        let notes = self.notes.len() as f64 * 18.0;
        let table = self.grid.as_ref().map_or(0.0, |grid| (grid.rows.len() as f64 + 2.0) * LINE + 8.0);
        Ok(drawing((WIDTH, below + notes + table), |pen| {
            let title = Letters { size: TITLE, ..letters(INK, Side::Right) };
            pen.text(&shortened(&self.title, TITLE, room), (MARGIN, 16.0), title);
            for (row, entries) in legend.iter().enumerate() {
                for (number, start) in entries {
                    let (x, y) = (MARGIN + start, 38.0 + row as f64 * 18.0);
                    let corners = [(-6.0, 0.0), (-6.0, 22.0), (5.0, 22.0), (5.0, 0.0), (-6.0, 0.0)];
                    let corners = corners.map(|(down, right)| (x + right, y + down));
                    let tint = used.get(*number).map(|sort| series(sort.series));
                    outline(pen, &corners, tint.unwrap_or(FAINT), tint.map(|_| INNERMOST));
                    pen.text(names[*number], (x + 28.0, y), letters(INK, Side::Right));
                }
            }
            for (at, part) in &boxes {
                part.draw(pen, &self.sorts, *at);
            }
            for (line, note) in self.notes.iter().enumerate() {
                let at = (MARGIN, below + 6.0 + line as f64 * 18.0);
                pen.text(&shortened(note, WORDS, room), at, letters(INK, Side::Right));
            }
            if let Some(grid) = &self.grid {
                grid.draw(pen, below + notes + 6.0);
            }
        }))
    }
}

impl Cell {
    /// Returns true if `test` returns true for the box or for any box inside it.
    fn has(&self, test: &dyn Fn(&Cell) -> bool) -> bool {
        test(self) || self.parts.iter().any(|part| part.has(test))
    }
}

impl Grid {
    /// Draws the table with its title. `top` is the middle of the title, in pixels.
    fn draw(&self, pen: &Pen<'_>, top: f64) {
        pen.text(&self.title, (MARGIN, top), letters(INK, Side::Right));
        let column = |number: usize| MARGIN + COLUMN * (number as f64 + 1.0) + LEAST;
        for (number, head) in self.heads.iter().enumerate() {
            pen.text(head, (column(number), top + LINE + 3.0), letters(FAINT, Side::Left));
        }
        for (line, (head, row)) in self.heads.iter().zip(&self.rows).enumerate() {
            let y = top + (line as f64 + 2.0) * LINE + 3.0;
            pen.text(head, (MARGIN + LEAST, y), letters(FAINT, Side::Left));
            for (number, value) in row.iter().enumerate() {
                pen.text(value, (column(number), y), letters(INK, Side::Left));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use roxmltree::Document;

    use super::*;

    fn leaf(name: &str) -> Cell {
        Cell { name: name.to_owned(), sort: 1, ..Cell::default() }
    }

    fn nest(boxes: Vec<Cell>) -> Nest {
        let sorts = ["package", "core"].iter().enumerate();
        let sorts = sorts.map(|(series, name)| Sort { name: (*name).to_owned(), series }).collect();
        Nest { title: "A machine".to_owned(), sorts, boxes, void: "not usable".to_owned(), ..Nest::default() }
    }

    /// Returns the corners of all filled boxes.
    fn corners(svg: &str) -> Vec<Vec<(f64, f64)>> {
        let document = Document::parse(svg).expect("XML");
        let points = document.descendants().filter(|node| node.has_tag_name("polygon"));
        let numbers = |text: &str| text.split([' ', ',']).filter_map(|word| word.parse().ok()).collect::<Vec<f64>>();
        let pairs = |text: &str| numbers(text).chunks(2).map(|pair| (pair[0] / 4.0, pair[1] / 4.0)).collect();
        points.map(|node| pairs(node.attribute("points").expect("points"))).collect()
    }

    #[test]
    fn boxes_have_their_names_and_void_ones_are_in_the_legend() {
        let package = |parts| Cell { name: "package 0".to_owned(), parts, ..Cell::default() };
        let plain = nest(vec![package(vec![leaf("0\n12"), leaf("1\n13")])]).svg().expect("it can be drawn");
        for text in ["A machine", "package", "package 0", "0", "13"] {
            assert!(plain.contains(&format!(">\n{text}\n<")), "{text}: {plain}");
        }
        assert!(!plain.contains("not usable"), "{plain}");
        let alone = nest(vec![leaf("0")]).svg().expect("it can be drawn");
        assert!(!alone.contains("package"), "the legend contains only types with a box: {alone}");
        let void = Cell { void: true, ..leaf("2") };
        let drawn = nest(vec![package(vec![leaf("0"), void])]).svg().expect("it can be drawn");
        assert!(drawn.contains("not usable"), "{drawn}");
        assert_eq!(corners(&plain).len(), corners(&drawn).len() + 1, "a box with dashes is not filled");
    }

    #[test]
    fn numbers_stand_below_and_wrong_ones_are_refused() {
        let grid = |rows| Grid { title: "distances".to_owned(), heads: vec!["0".to_owned(), "1".to_owned()], rows };
        let row = |values: [&str; 2]| values.map(str::to_owned).to_vec();
        let mut drawn = nest(vec![leaf("0")]);
        drawn.grid = Some(grid(vec![row(["10", "21"]), row(["22", "10"])]));
        let svg = drawn.svg().expect("it can be drawn");
        assert!(["distances", "21", "22"].iter().all(|text| svg.contains(&format!(">\n{text}\n<"))), "{svg}");
        drawn.grid = Some(grid(vec![vec!["10".to_owned()]]));
        assert!(matches!(drawn.svg(), Err(PlotError::Length { values: 1, places: 2, .. })));
        assert_eq!(nest(Vec::new()).svg(), Err(PlotError::Empty("A machine".to_owned())));
    }

    fn cells() -> impl Strategy<Value = Cell> {
        let cell = |name: String, sort, void, parts| Cell { name, sort, void, parts };
        let leaf = ("\\PC{0,30}", 0..3_usize, any::<bool>())
            .prop_map(move |(name, sort, void)| cell(name, sort, void, Vec::new()));
        leaf.prop_recursive(4, 60, 9, move |inner| {
            ("\\PC{0,120}", 0..3_usize, prop::collection::vec(inner, 1..9))
                .prop_map(move |(name, sort, parts)| cell(name, sort, false, parts))
        })
    }

    proptest! {
        /// Any two boxes are disjoint, or one contains the other. All boxes lie within the figure.
        #[test]
        fn boxes_are_apart_or_in_each_other(boxes in prop::collection::vec(cells(), 1..6)) {
            let svg = nest(boxes).svg().expect("it can be drawn");
            let boxes: Vec<_> = corners(&svg).into_iter().map(|box_| (box_[0], box_[2])).collect();
            for (at, ((left, top), (right, bottom))) in boxes.iter().enumerate() {
                prop_assert!(*left >= 0.0 && *right <= WIDTH && left < right && top < bottom);
                for ((other_left, other_top), (other_right, other_bottom)) in &boxes[at + 1..] {
                    let beside = right <= other_left || other_right <= left;
                    let apart = beside || bottom <= other_top || other_bottom <= top;
                    let within = left < other_left && right > other_right && top < other_top && bottom > other_bottom;
                    prop_assert!(apart || within, "{:?}", boxes);
                }
            }
        }
    }
}
