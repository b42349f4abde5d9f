//! Determines how long a state must be simulated: a stretch of detailed simulation in one state, divided into pieces of
//! equal length. The variance of the pieces gives the confidence interval of the mean.
//!
//! This is the method of batch means with a fixed number of batches of growing size (Law and Carson, Operations
//! Research 27, 1979). As long as neighbouring pieces are correlated, or the confidence interval is too wide,
//! neighbours are joined and more pieces are added. A stretch whose first and second half differ is not in a steady
//! state: it is discarded, and a new one begins.

use crate::tally::Summary;

/// The number of pieces before the first verdict.
const MIN_PIECES: usize = 16;
/// When a stretch has this number of pieces, each two neighbouring pieces are joined. The number is twice `MIN_PIECES`,
/// so that enough pieces remain.
const MAX_PIECES: usize = 32;
/// The two-sided 95 % quantile of Student's t distribution with 15 degrees of freedom. With more pieces it is slightly
/// conservative.
const STUDENT: f64 = 2.131;
/// The largest accepted correlation of neighbouring pieces.
const MAX_CORRELATION: f64 = 0.4;
/// The largest accepted difference between the two halves, in standard errors.
const MAX_DIFFERENCE: f64 = 3.0;

/// The assessment of a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// More pieces are necessary.
    More,
    /// The stretch is not in a steady state.
    Moving,
    /// The figures are known.
    Known,
}

/// A stretch of detailed simulation.
#[derive(Clone, Debug)]
pub(crate) struct Stretch {
    /// The complete pieces.
    pieces: Vec<Summary>,
    /// The length of a piece, in seconds.
    pub(crate) piece: f64,
    /// The incomplete last piece.
    partial: Summary,
}

/// A function that returns the numerator and the denominator of a figure for one piece.
type Figure = fn(&Summary) -> (f64, f64);

/// The figures that must be known: the rate, the load and the calls per second, and the mean delay.
const FIGURES: [Figure; 4] = [
    |summary| (summary.left, summary.time),
    |summary| (summary.busy, summary.time),
    |summary| (summary.calls, summary.time),
    |summary| (summary.delay, summary.left),
];

impl Stretch {
    /// Creates a stretch whose pieces have this length at first, in seconds.
    pub(crate) fn new(piece: f64) -> Self {
        Self { pieces: Vec::new(), piece, partial: Summary::default() }
    }

    /// Adds the totals of a simulated span, which must not be longer than [`until_complete`](Self::until_complete).
    pub(crate) fn add(&mut self, summary: Summary) {
        self.partial = self.partial.plus(summary);
        if self.partial.time < 0.999 * self.piece {
            return;
        }
        self.pieces.push(std::mem::take(&mut self.partial));
        if self.pieces.len() == MAX_PIECES {
            self.pieces = self.pieces.chunks(2).map(|pair| pair[0].plus(pair[1])).collect();
            self.piece *= 2.0;
        }
    }

    /// Returns the time until the next piece is complete, in seconds.
    pub(crate) fn until_complete(&self) -> f64 {
        self.piece - self.partial.time
    }

    /// Returns the length of the whole stretch, in seconds.
    pub(crate) fn length(&self) -> f64 {
        self.pieces.iter().fold(self.partial.time, |length, piece| length + piece.time)
    }

    /// Returns whether all figures are known to within the fraction `within`. While a piece is incomplete, the result
    /// is [`Verdict::More`].
    pub(crate) fn verdict(&self, within: f64) -> Verdict {
        if self.pieces.len() < MIN_PIECES || !self.partial_is_empty() {
            return Verdict::More;
        }
        let each = FIGURES.map(|figure| self.figure(figure, within));
        if each.contains(&Verdict::Moving) {
            Verdict::Moving
        } else if each.contains(&Verdict::More) {
            Verdict::More
        } else {
            Verdict::Known
        }
    }

    /// Returns true if no piece is incomplete.
    fn partial_is_empty(&self) -> bool {
        self.partial.time == 0.0
    }

    /// Returns the verdict on one figure.
    fn figure(&self, figure: Figure, within: f64) -> Verdict {
        let pieces: Vec<(f64, f64)> = self.pieces.iter().map(figure).collect();
        let sum =
            |pieces: &[(f64, f64)]| pieces.iter().fold((0.0, 0.0), |sum, piece| (sum.0 + piece.0, sum.1 + piece.1));
        let ratio = |(above, below): (f64, f64)| if below > 0.0 { above / below } else { 0.0 };
        let all = ratio(sum(&pieces));
        if all == 0.0 {
            // No packet was sent yet. If no module was called either, the state is steady.
            let nothing = self.pieces.iter().all(|piece| piece.calls == 0.0);
            return if nothing { Verdict::Known } else { Verdict::More };
        }
        // The deviation of a piece from the mean ratio: numerator minus mean ratio times denominator.
        let count = pieces.len() as f64;
        let below = sum(&pieces).1 / count;
        let off: Vec<f64> = pieces.iter().map(|(above, under)| (above - all * under) / below).collect();
        let variance = off.iter().map(|off| off * off).sum::<f64>() / (count - 1.0);
        let error = (variance / count).sqrt();
        let (first, second) = pieces.split_at(pieces.len() / 2);
        // Each half has half of the pieces. The standard error of the difference is therefore twice that of the mean.
        let apart = (ratio(sum(first)) - ratio(sum(second))).abs();
        if apart > within * all && apart > MAX_DIFFERENCE * 2.0 * error {
            return Verdict::Moving;
        }
        let correlation =
            off.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>() / (count - 1.0) / variance.max(f64::MIN_POSITIVE);
        let sure = STUDENT * error <= within * all;
        let tiny = STUDENT * error <= 0.1 * within * all;
        if tiny || (sure && correlation <= MAX_CORRELATION) { Verdict::Known } else { Verdict::More }
    }

    /// Returns true if all figures of a short span are close to the figures of the stretch: within four standard
    /// deviations, or within the fraction `within`.
    pub(crate) fn fits(&self, summary: Summary, within: f64) -> bool {
        FIGURES.iter().all(|figure| {
            let pieces: Vec<(f64, f64)> = self.pieces.iter().map(figure).collect();
            let sum = pieces.iter().fold((0.0, 0.0), |sum, piece| (sum.0 + piece.0, sum.1 + piece.1));
            let (above, below) = figure(&summary);
            // Without a denominator, a figure has no value. Then it must have no value in both: the span and the
            // stretch.
            if below == 0.0 || sum.1 == 0.0 {
                return below == sum.1;
            }
            let all = sum.0 / sum.1;
            let off = |(above, below): (f64, f64)| above / below.max(f64::MIN_POSITIVE) - all;
            let variance = pieces.iter().map(|piece| off(*piece).powi(2)).sum::<f64>() / pieces.len() as f64;
            // Joined pieces are longer than this span, and the variance of a shorter span is larger.
            let shorter = (self.piece / summary.time).max(1.0);
            off((above, below)).abs() <= (4.0 * (variance * shorter).sqrt()).max(within * all)
        })
    }
}

#[cfg(test)]
mod tests {
    use forebay_units::Random;

    use super::*;

    fn summary(left: f64, delay: f64) -> Summary {
        Summary { time: 1.0, left, calls: left, busy: 0.5, delay: delay * left }
    }

    fn after(pieces: usize, mut each: impl FnMut(usize) -> Summary) -> Verdict {
        let mut stretch = Stretch::new(1.0);
        (0..pieces).for_each(|at| stretch.add(each(at)));
        stretch.verdict(0.02)
    }

    #[test]
    fn constant_figures_are_soon_known() {
        assert_eq!(after(15, |_| summary(100.0, 1.0)), Verdict::More);
        assert_eq!(after(16, |_| summary(100.0, 1.0)), Verdict::Known);
        assert_eq!(after(16, |_| Summary { time: 1.0, ..Summary::default() }), Verdict::Known);
    }

    #[test]
    fn a_growing_delay_is_not_a_steady_state() {
        assert_eq!(after(20, |at| summary(100.0, 1.0 + at as f64)), Verdict::Moving);
        // No packet has been sent yet.
        assert_eq!(after(20, |_| Summary { calls: 5.0, ..summary(0.0, 0.0) }), Verdict::More);
    }

    #[test]
    fn scattered_figures_take_longer_and_are_right() {
        let mut right = 0;
        for seed in 0..40 {
            let (mut random, mut stretch) = (Random::stream(seed, 0), Stretch::new(1.0));
            let mut sum = (0.0, 0);
            while stretch.verdict(0.02) != Verdict::Known {
                if stretch.verdict(0.02) == Verdict::Moving {
                    (stretch, sum) = (Stretch::new(1.0), (0.0, 0));
                }
                let delay = random.exponential();
                sum = (sum.0 + delay, sum.1 + 1);
                stretch.add(summary(100.0, delay));
            }
            assert!(sum.1 > 1_000, "{}", sum.1);
            right += usize::from((sum.0 / f64::from(sum.1) - 1.0).abs() < 0.03);
        }
        assert!(right >= 36, "{right} of 40");
    }
}
