//! Colours that people with different colour vision can distinguish.
//!
//! The first six colours of series come from Okabe and Ito, *Color universal design* (2008). In this order,
//! neighbouring colours also differ in lightness. A figure contains these colours. On dark screens, the style of a page
//! replaces some of them ([`DARK`]).

/// A colour: red, green and blue.
pub(crate) type Colour = [u8; 3];

/// The colour of text and axes.
pub(crate) const INK: Colour = [0x22, 0x22, 0x22];
/// The colour of less important text: tick labels.
pub(crate) const FAINT: Colour = [0x66, 0x66, 0x66];
/// The colour of grid lines.
pub(crate) const GRID: Colour = [0xDD, 0xDD, 0xDD];

/// The colours of series, in order. After the last colour, the first colour follows again.
const SERIES: [Colour; 7] = [
    [0x00, 0x72, 0xB2],
    [0xD5, 0x5E, 0x00],
    [0x00, 0x9E, 0x73],
    [0xCC, 0x79, 0xA7],
    [0xE6, 0x9F, 0x00],
    [0x56, 0xB4, 0xE9],
    [0x80, 0x80, 0x80],
];

/// Returns the colour of series `number`.
pub(crate) fn series(number: usize) -> Colour {
    SERIES[number % SERIES.len()]
}

/// The colours that would be too dark on a dark page, each with its replacement.
pub(crate) const DARK: [(Colour, Colour); 5] = [
    (INK, [0xE6, 0xE6, 0xE6]),
    (FAINT, [0xA8, 0xA8, 0xA8]),
    (GRID, [0x3A, 0x3F, 0x46]),
    (SERIES[0], [0x4D, 0xA6, 0xE0]),
    (SERIES[1], [0xF0, 0x8A, 0x3C]),
];

/// Returns a colour in the form of SVG and CSS. The drawing library must write it in the same form, because the style
/// for dark screens finds colours by this text.
pub(crate) fn written([red, green, blue]: Colour) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}
