//! A figure, as a value: what is shown, not how.

use crate::{PlotError, chart};

/// An axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    pub(crate) label: String,
    pub(crate) log: bool,
    pub(crate) ends: (Option<f64>, Option<f64>),
    pub(crate) names: Vec<String>,
}

impl Axis {
    /// An even axis with a label, which should name the unit.
    #[must_use]
    pub fn new(label: &str) -> Self {
        Self { label: label.to_owned(), ..Self::default() }
    }

    /// It begins at 0.
    #[must_use]
    pub fn from_zero(mut self) -> Self {
        self.ends.0 = Some(0.0);
        self
    }

    /// It has these ends. What lies outside is an error.
    #[must_use]
    pub fn between(mut self, low: f64, high: f64) -> Self {
        self.ends = (Some(low), Some(high));
        self
    }

    /// Equal distances are equal ratios.
    #[must_use]
    pub fn log(mut self) -> Self {
        self.log = true;
        self
    }

    /// The values 0, 1, 2 … have these names.
    #[must_use]
    pub fn named(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.names = names.into_iter().collect();
        self
    }
}

/// Something that a figure shows. All but events have a place in the legend.
#[derive(Clone, Debug, PartialEq)]
pub enum Layer {
    /// Points joined by a line, each with a dot.
    Line {
        /// In the legend.
        name: String,
        /// By x.
        points: Vec<(f64, f64)>,
    },
    /// Points alone.
    Points {
        /// In the legend.
        name: String,
        /// Where.
        points: Vec<(f64, f64)>,
    },
    /// A step function: a value holds from its x to the next.
    Steps {
        /// In the legend.
        name: String,
        /// By x.
        points: Vec<(f64, f64)>,
    },
    /// A range of y for each x, in the colour of the layer before it.
    Band {
        /// In the legend; empty: not there.
        name: String,
        /// x, low and high, by x.
        ranges: Vec<(f64, f64, f64)>,
    },
    /// A dashed line between two points, to compare with. It does not widen the axes: what lies outside is cut off.
    Reference {
        /// In the legend.
        name: String,
        /// From.
        from: (f64, f64),
        /// To.
        to: (f64, f64),
    },
    /// A dashed line across at a height, to compare with.
    Level {
        /// In the legend.
        name: String,
        /// The height.
        y: f64,
    },
    /// Something that happened at x: a line from top to bottom, with a word above.
    Event {
        /// The word.
        name: String,
        /// Where.
        x: f64,
    },
}

impl Layer {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Line { name, .. }
            | Self::Points { name, .. }
            | Self::Steps { name, .. }
            | Self::Band { name, .. }
            | Self::Reference { name, .. }
            | Self::Level { name, .. }
            | Self::Event { name, .. } => name,
        }
    }

    /// The points that must be on the axes.
    pub(crate) fn places(&self) -> Vec<(Option<f64>, Option<f64>)> {
        match self {
            Self::Line { points, .. } | Self::Points { points, .. } | Self::Steps { points, .. } => {
                points.iter().map(|(x, y)| (Some(*x), Some(*y))).collect()
            }
            Self::Band { ranges, .. } => {
                let both = |(x, low, high): &(f64, f64, f64)| [(Some(*x), Some(*low)), (Some(*x), Some(*high))];
                ranges.iter().flat_map(both).collect()
            }
            Self::Reference { .. } => Vec::new(),
            Self::Level { y, .. } => vec![(None, Some(*y))],
            Self::Event { x, .. } => vec![(Some(*x), None)],
        }
    }
}

/// A figure over two axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) layers: Vec<Layer>,
}

impl Figure {
    /// An empty one.
    #[must_use]
    pub fn new(title: &str, x: Axis, y: Axis) -> Self {
        Self { title: title.to_owned(), x, y, layers: Vec::new() }
    }

    /// With a further layer, drawn over those before it.
    #[must_use]
    pub fn with(mut self, layer: Layer) -> Self {
        self.layers.push(layer);
        self
    }

    /// What it is called.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The figure as an SVG document.
    ///
    /// # Errors
    /// [`PlotError`].
    ///
    /// ```
    /// use forebay_plot::{Axis, Figure, Layer};
    /// let line = Layer::Line { name: "router".into(), points: vec![(1e6, 0.1), (2e6, 0.2)] };
    /// let figure = Figure::new("Load", Axis::new("packets a second"), Axis::new("busy").from_zero()).with(line);
    /// assert!(figure.svg()?.starts_with("<svg"));
    /// # Ok::<(), forebay_plot::PlotError>(())
    /// ```
    pub fn svg(&self) -> Result<String, PlotError> {
        chart::draw(self)
    }
}

/// The cumulative distribution of samples, for [`Layer::Steps`]: which share of them is at most so much.
#[must_use]
pub fn cdf(samples: &[f64]) -> Vec<(f64, f64)> {
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|sample| sample.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let all = sorted.len() as f64;
    let mut steps: Vec<(f64, f64)> = Vec::new();
    for (at, sample) in sorted.into_iter().enumerate() {
        let share = (at + 1) as f64 / all;
        match steps.last_mut() {
            Some(last) if last.0 == sample => last.1 = share,
            _ => steps.push((sample, share)),
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_rises_to_one() {
        assert_eq!(cdf(&[3.0, 1.0, 3.0, f64::NAN, 2.0]), [(1.0, 0.25), (2.0, 0.5), (3.0, 1.0)]);
        assert!(cdf(&[]).is_empty());
    }
}
