//! Building blocks of report pages.

use forebay_plot::{Align, Bars, Block, Figure, PlotError};

/// Returns a paragraph.
pub(crate) fn text(text: &str) -> Block {
    Block::Text(text.to_owned())
}

/// Returns a figure with a caption.
pub(crate) fn figure(figure: &Figure, caption: &str) -> Result<Block, PlotError> {
    Ok(Block::Figure { title: figure.title().to_owned(), svg: figure.svg()?, caption: caption.to_owned() })
}

/// Returns a bar chart with a caption.
pub(crate) fn bars(bars: &Bars, caption: &str) -> Result<Block, PlotError> {
    Ok(Block::Figure { title: bars.title.clone(), svg: bars.svg()?, caption: caption.to_owned() })
}

/// Formats a value with the given number of decimals, or `n/a` if it is unknown.
pub(crate) fn known(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "n/a".to_owned(), |value| format!("{value:.decimals$}"))
}

/// Returns the heads of a table. The first column contains words, the others numbers.
pub(crate) fn columns(heads: &[&str]) -> Vec<(String, Align)> {
    let align = |at: usize| if at == 0 { Align::Left } else { Align::Right };
    heads.iter().enumerate().map(|(at, head)| ((*head).to_owned(), align(at))).collect()
}
