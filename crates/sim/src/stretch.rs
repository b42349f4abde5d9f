//! How long it takes until figures are known: a stretch of detail in one state, cut into pieces of equal length, whose means say
//! how sure the mean of all is.
//!
//! The method of batch means with a fixed number of pieces that are doubled (Law and Carson, Operations Research 27, 1979): as long as
//! pieces that follow each other are alike, or as the mean is not sure enough, neighbours are joined and more are added. Before,
//! a stretch whose first and second half differ is no steady state: it is forgotten, and a new one begins.

use crate::tally::Gist;

/// Pieces at which the question is asked first, and at which neighbours are joined.
const FEWEST: usize = 16;
const MOST: usize = 32;
/// The two-sided 95 % quantile of Student's law with 15 degrees of freedom: a little too careful for more.
const STUDENT: f64 = 2.131;
/// Pieces that follow each other may have so much in common.
const ALIKE: f64 = 0.4;
/// How many standard errors apart halves may be.
const APART: f64 = 3.0;

/// What is known of a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Too little.
    More,
    /// It is no steady state.
    Moving,
    /// Enough.
    Known,
}

/// A stretch of detail.
#[derive(Clone, Debug)]
pub(crate) struct Stretch {
    pieces: Vec<Gist>,
    /// How long a piece is, in seconds.
    pub(crate) piece: f64,
    /// Of what is to become a piece, how much has been joined so far.
    part: Gist,
}

/// A figure: what of a piece is divided by what.
type Figure = fn(&Gist) -> (f64, f64);

const FIGURES: [Figure; 4] = [
    |gist| (gist.left, gist.time),
    |gist| (gist.busy, gist.time),
    |gist| (gist.calls, gist.time),
    |gist| (gist.delay, gist.left),
];

impl Stretch {
    /// One whose pieces last so long at first, in seconds.
    pub(crate) fn new(piece: f64) -> Self {
        Self { pieces: Vec::new(), piece, part: Gist::default() }
    }

    /// Adds what happened in a time of the first length of pieces.
    pub(crate) fn add(&mut self, what: Gist) {
        self.part = self.part.plus(what);
        if self.part.time < 0.999 * self.piece {
            return;
        }
        self.pieces.push(std::mem::take(&mut self.part));
        if self.pieces.len() == MOST {
            self.pieces = self.pieces.chunks(2).map(|pair| pair[0].plus(pair[1])).collect();
            self.piece *= 2.0;
        }
    }

    /// How long it is until the next piece is complete, in seconds.
    pub(crate) fn wants(&self) -> f64 {
        self.piece - self.part.time
    }

    /// How long all of it is, in seconds.
    pub(crate) fn length(&self) -> f64 {
        self.pieces.iter().fold(self.part.time, |length, piece| length + piece.time)
    }

    /// Whether its figures are known to within this part of themselves.
    pub(crate) fn verdict(&self, within: f64) -> Verdict {
        if self.pieces.len() < FEWEST || !self.part_is_empty() {
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

    fn part_is_empty(&self) -> bool {
        self.part.time == 0.0
    }

    fn figure(&self, figure: Figure, within: f64) -> Verdict {
        let pieces: Vec<(f64, f64)> = self.pieces.iter().map(figure).collect();
        let sum =
            |pieces: &[(f64, f64)]| pieces.iter().fold((0.0, 0.0), |sum, piece| (sum.0 + piece.0, sum.1 + piece.1));
        let ratio = |(above, below): (f64, f64)| if below > 0.0 { above / below } else { 0.0 };
        let all = ratio(sum(&pieces));
        if all == 0.0 {
            // Nothing left yet; or nothing comes at all, which is as steady as can be.
            let nothing = self.pieces.iter().all(|piece| piece.calls == 0.0);
            return if nothing { Verdict::Known } else { Verdict::More };
        }
        // Deviations of a ratio: of what is above from what it would be.
        let count = pieces.len() as f64;
        let below = sum(&pieces).1 / count;
        let off: Vec<f64> = pieces.iter().map(|(above, under)| (above - all * under) / below).collect();
        let variance = off.iter().map(|off| off * off).sum::<f64>() / (count - 1.0);
        let error = (variance / count).sqrt();
        let (first, second) = pieces.split_at(pieces.len() / 2);
        let apart = (ratio(sum(first)) - ratio(sum(second))).abs();
        if apart > within * all && apart > APART * 2.0 * error {
            return Verdict::Moving;
        }
        let common =
            off.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>() / (count - 1.0) / variance.max(f64::MIN_POSITIVE);
        let sure = STUDENT * error <= within * all;
        let tiny = STUDENT * error <= 0.1 * within * all;
        if tiny || (sure && common <= ALIKE) { Verdict::Known } else { Verdict::More }
    }

    /// Whether a little while in this state is like the others.
    pub(crate) fn fits(&self, what: Gist, within: f64) -> bool {
        FIGURES.iter().all(|figure| {
            let pieces: Vec<(f64, f64)> = self.pieces.iter().map(figure).collect();
            let sum = pieces.iter().fold((0.0, 0.0), |sum, piece| (sum.0 + piece.0, sum.1 + piece.1));
            let (above, below) = figure(&what);
            if below == 0.0 || sum.1 == 0.0 {
                return below == sum.1;
            }
            let all = sum.0 / sum.1;
            let off = |(above, below): (f64, f64)| above / below.max(f64::MIN_POSITIVE) - all;
            let variance = pieces.iter().map(|piece| off(*piece).powi(2)).sum::<f64>() / pieces.len() as f64;
            // Pieces may have been joined since they were as short as this one.
            let shorter = (self.piece / what.time).max(1.0);
            off((above, below)).abs() <= (4.0 * (variance * shorter).sqrt()).max(within * all)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn gist(left: f64, delay: f64) -> Gist {
        Gist { time: 1.0, left, calls: left, busy: 0.5, delay: delay * left }
    }

    fn after(pieces: usize, mut each: impl FnMut(usize) -> Gist) -> Verdict {
        let mut stretch = Stretch::new(1.0);
        (0..pieces).for_each(|at| stretch.add(each(at)));
        stretch.verdict(0.02)
    }

    #[test]
    fn what_is_always_the_same_is_soon_known() {
        assert_eq!(after(15, |_| gist(100.0, 1.0)), Verdict::More);
        assert_eq!(after(16, |_| gist(100.0, 1.0)), Verdict::Known);
        assert_eq!(after(16, |_| Gist { time: 1.0, ..Gist::default() }), Verdict::Known);
    }

    #[test]
    fn what_grows_is_no_state() {
        assert_eq!(after(20, |at| gist(100.0, 1.0 + at as f64)), Verdict::Moving);
        // Nothing has left yet.
        assert_eq!(after(20, |_| Gist { calls: 5.0, ..gist(0.0, 0.0) }), Verdict::More);
    }

    #[test]
    fn what_scatters_takes_longer_and_the_answer_is_right() {
        let mut right = 0;
        for seed in 0..40 {
            let (mut random, mut stretch) = (Random::new(seed, 0), Stretch::new(1.0));
            let mut sum = (0.0, 0);
            while stretch.verdict(0.02) != Verdict::Known {
                if stretch.verdict(0.02) == Verdict::Moving {
                    (stretch, sum) = (Stretch::new(1.0), (0.0, 0));
                }
                let delay = random.exponential();
                sum = (sum.0 + delay, sum.1 + 1);
                stretch.add(gist(100.0, delay));
            }
            assert!(sum.1 > 1_000, "{}", sum.1);
            right += usize::from((sum.0 / f64::from(sum.1) - 1.0).abs() < 0.03);
        }
        assert!(right >= 36, "{right} of 40");
    }
}
