//! Draws figures as SVG and writes reports as self-contained HTML pages.
//!
//! A figure is a plain value that describes the content. This crate determines the appearance, so that all reports of
//! Forebay look the same. The same figure always gives the same text. The crate reads no fonts and no files, so it
//! estimates the width of text. Colours follow the light or dark scheme of the reader's browser.

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

/// The reason why a figure cannot be drawn.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlotError {
    /// A value does not lie on its axis.
    #[error("figure '{figure}': axis '{axis}': value {value} cannot be drawn: allowed are finite numbers{allowed}")]
    Place {
        /// The figure's title.
        figure: String,
        /// The axis's label.
        axis: String,
        /// The value.
        value: f64,
        /// A suffix for the error text that restricts the allowed numbers. May be empty.
        allowed: &'static str,
    },
    /// The figure has no points.
    #[error("figure '{0}': no points to draw: at least one is required")]
    Empty(String),
    /// A list does not have the required length.
    #[error("figure '{figure}': '{name}' has {values} values, {places} are required")]
    Length {
        /// The figure's title.
        figure: String,
        /// The name of the group, layer or grid.
        name: String,
        /// The number of values in the list.
        values: usize,
        /// The required number of values.
        places: usize,
    },
}
