//! Figures and reports: SVG plots, and HTML pages that need nothing besides themselves.
//!
//! Figures are plain values that say what is shown; how it looks is settled here once, so that all of Forebay's reports look
//! alike. What comes of a figure is the same text each time. No font is read and nothing is loaded: text widths are
//! estimated, and colours follow the reader's light or dark scheme.

#![forbid(unsafe_code)]

mod bars;
mod chart;
mod escape;
mod figure;
mod nest;
mod number;
mod page;
mod palette;
mod pen;
mod scale;

pub use bars::{Bars, Group, Reference};
pub use figure::{Axis, Figure, Layer, cdf};
pub use nest::{Cell, Grid, Nest, Sort};
pub use number::engineering;
pub use page::{Align, Block, Page, Section, Table};

/// What cannot be drawn.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlotError {
    /// A value is no place on an axis.
    #[error("figure '{figure}': {value} is no place on the axis '{axis}': allowed are finite numbers{allowed}")]
    Place {
        /// The figure's title.
        figure: String,
        /// The axis's label.
        axis: String,
        /// The value.
        value: f64,
        /// Of which kind.
        allowed: &'static str,
    },
    /// There is nothing to draw.
    #[error("figure '{0}': there is nothing in it: allowed are one or more points")]
    Empty(String),
    /// A list has another length than what it is for.
    #[error("figure '{figure}': '{name}' has {values} values for {places} places")]
    Length {
        /// The figure's title.
        figure: String,
        /// The group or layer.
        name: String,
        /// How many values it has.
        values: usize,
        /// How many it needs.
        places: usize,
    },
}
