//! Colours that people tell apart who see colours differently.
//!
//! The first are those of Okabe and Ito, *Color universal design* (2008), in an order in which neighbours differ in
//! lightness, too. Figures name them; a page gives each a second value for dark screens ([`STYLE`]).

/// A colour: red, green, blue.
pub(crate) type Colour = [u8; 3];

/// Text and axes.
pub(crate) const INK: Colour = [0x22, 0x22, 0x22];
/// What is less important: tick labels.
pub(crate) const FAINT: Colour = [0x66, 0x66, 0x66];
/// Lines of the grid.
pub(crate) const GRID: Colour = [0xDD, 0xDD, 0xDD];

/// Of series, in order; after the last comes the first again.
const SERIES: [Colour; 7] = [
    [0x00, 0x72, 0xB2],
    [0xD5, 0x5E, 0x00],
    [0x00, 0x9E, 0x73],
    [0xCC, 0x79, 0xA7],
    [0xE6, 0x9F, 0x00],
    [0x56, 0xB4, 0xE9],
    [0x80, 0x80, 0x80],
];

/// The colour of series `number`.
pub(crate) fn series(number: usize) -> Colour {
    SERIES[number % SERIES.len()]
}

/// What the colours are on a dark page: those that would be too dark there.
pub(crate) const DARK: [(Colour, Colour); 5] = [
    (INK, [0xE6, 0xE6, 0xE6]),
    (FAINT, [0xA8, 0xA8, 0xA8]),
    (GRID, [0x3A, 0x3F, 0x46]),
    (SERIES[0], [0x4D, 0xA6, 0xE0]),
    (SERIES[1], [0xF0, 0x8A, 0x3C]),
];

/// A colour as SVG and CSS write it; the drawing library writes it like this, too.
pub(crate) fn written([red, green, blue]: Colour) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}
