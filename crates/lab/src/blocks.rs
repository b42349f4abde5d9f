//! What reports' pages are put together from.

use forebay_plot::{Align, Bars, Block, Figure, PlotError};

/// A paragraph.
pub(crate) fn text(text: &str) -> Block {
    Block::Text(text.to_owned())
}

/// A figure with a word below.
pub(crate) fn figure(figure: &Figure, caption: &str) -> Result<Block, PlotError> {
    Ok(Block::Figure { title: figure.title().to_owned(), svg: figure.svg()?, caption: caption.to_owned() })
}

/// Bars with a word below.
pub(crate) fn bars(bars: &Bars, caption: &str) -> Result<Block, PlotError> {
    Ok(Block::Figure { title: bars.title.clone(), svg: bars.svg()?, caption: caption.to_owned() })
}

/// A figure that may not be known, with so many decimals.
pub(crate) fn known(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "n/a".to_owned(), |value| format!("{value:.decimals$}"))
}

/// A table's heads: the first column has words, the others figures.
pub(crate) fn columns(heads: &[&str]) -> Vec<(String, Align)> {
    let align = |at: usize| if at == 0 { Align::Left } else { Align::Right };
    heads.iter().enumerate().map(|(at, head)| ((*head).to_owned(), align(at))).collect()
}
