//! The description of a figure with two axes: its axes and layers. The module `chart` determines the appearance.

use crate::{PlotError, chart};

/// An axis of a figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    pub(crate) label: String,
    /// True for a logarithmic axis.
    pub(crate) log: bool,
    /// The fixed low and high end. `None` for an end that is computed from the values of the layers.
    pub(crate) ends: (Option<f64>, Option<f64>),
    /// The names of the values 0, 1, 2 … Empty for an axis of numbers.
    pub(crate) names: Vec<String>,
}

impl Axis {
    /// Creates a linear axis. The label should name the unit.
    #[must_use]
    pub fn new(label: &str) -> Self {
        Self { label: label.to_owned(), ..Self::default() }
    }

    /// Starts the axis at 0.
    #[must_use]
    pub fn from_zero(mut self) -> Self {
        self.ends.0 = Some(0.0);
        self
    }

    /// Sets both ends of the axis. `low` must be less than `high`. A value outside of the ends is an error when the
    /// figure is drawn.
    #[must_use]
    pub fn between(mut self, low: f64, high: f64) -> Self {
        self.ends = (Some(low), Some(high));
        self
    }

    /// Makes the axis logarithmic: equal distances are equal ratios. All values must be above 0.
    #[must_use]
    pub fn log(mut self) -> Self {
        self.log = true;
        self
    }

    /// Names the values 0, 1, 2 … of the axis.
    #[must_use]
    pub fn named(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.names = names.into_iter().collect();
        self
    }
}

/// A layer of a figure. All layers except events have an entry in the legend, if the legend has at least two entries.
#[derive(Clone, Debug, PartialEq)]
pub enum Layer {
    /// Points joined by a line. Each point has a dot.
    Line {
        /// The name in the legend.
        name: String,
        /// The points as (x, y), sorted by x.
        points: Vec<(f64, f64)>,
    },
    /// Points without a line.
    Points {
        /// The name in the legend.
        name: String,
        /// The points as (x, y).
        points: Vec<(f64, f64)>,
    },
    /// A step function: from each x to the next x, the function has the y of the first of the two points.
    Steps {
        /// The name in the legend.
        name: String,
        /// The points as (x, y), sorted by x.
        points: Vec<(f64, f64)>,
    },
    /// A range of y for each x, in the colour of the last line, points or steps before it.
    Band {
        /// The name in the legend. If it is empty, the band has no entry.
        name: String,
        /// The ranges as (x, low, high), sorted by x.
        ranges: Vec<(f64, f64, f64)>,
    },
    /// A dashed line between two points, for comparison. It does not widen the axes: a part outside of them is cut off.
    Reference {
        /// The name in the legend.
        name: String,
        /// The first end.
        from: (f64, f64),
        /// The second end.
        to: (f64, f64),
    },
    /// A dashed horizontal line over the whole width, for comparison.
    Level {
        /// The name in the legend.
        name: String,
        /// The y of the line.
        y: f64,
    },
    /// An event at x: a dashed vertical line over the whole height, with its name above.
    Event {
        /// The name of the event.
        name: String,
        /// The x of the event.
        x: f64,
    },
}

impl Layer {
    /// Returns the name of the layer, which may be empty for a band.
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

    /// Returns the points that the axes must contain. A coordinate is `None` if the layer has no value on this axis.
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

/// A figure with two axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) layers: Vec<Layer>,
}

impl Figure {
    /// Creates a figure without layers.
    #[must_use]
    pub fn new(title: &str, x: Axis, y: Axis) -> Self {
        Self { title: title.to_owned(), x, y, layers: Vec::new() }
    }

    /// Adds a layer. It is drawn over the layers before it.
    #[must_use]
    pub fn with(mut self, layer: Layer) -> Self {
        self.layers.push(layer);
        self
    }

    /// Returns the title.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Returns the figure as an SVG document.
    ///
    /// # Errors
    /// Returns [`PlotError`] if the figure has no points, or if a value does not lie on its axis.
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

/// Returns the cumulative distribution of samples, for [`Layer::Steps`]: each pair is a value and the fraction of
/// samples (0 to 1) that are at most this value. Samples that are not finite are ignored.
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
