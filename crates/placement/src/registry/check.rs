//! Checks the figures of a registry.

use forebay_graph::short;

use super::{DropModel, DropShape, FitMethod, FunctionModel, Registry, RegistryError};

/// The tolerance of a sum, because figures are rounded when they are written.
const ROUNDING: f64 = 1e-6;
/// The maximum length of a function's name, in bytes.
const LONGEST: usize = 200;

/// The range of rates. Like the next ranges, it must be within the range that the search accepts
/// (`Problem::check_numbers`). In sums of numbers that differ more, small numbers would be lost by rounding.
const RATE: Range = (1e-3..=1e15, "a number from 1e-3 to 1e15");
/// The range of metrics.
const METRIC: Range = (1e-6..=1e6, "a number from 1e-6 to 1e6");
/// The range of limits. The range is smaller than the range of the search, because limits are scaled to the number of
/// cores of a server, by a factor from a thousandth to ten thousand.
const LIMIT: Range = (1e-6..=1e11, "a number from 1e-6 to 1e11");
/// The range of h in the saturating shape.
const HALF: Range = (1e-12..=1e12, "a number from 1e-12 to 1e12");
/// The maximum number of cores that share a place of contention.
const MOST_CORES: usize = 1000;
/// The range of α, β and C, for errors.
const PARAMETER: &str = "a number from 0 to 1";

/// A range of allowed values, and its description for errors.
type Range = (std::ops::RangeInclusive<f64>, &'static str);

/// Checks figures, and creates errors with the location of the figure.
struct Checker<'a> {
    /// The name of the file, for errors.
    file: &'a str,
    /// The location of the figures that are checked now, for errors: `function 'nat_out': local.`, or empty.
    place: String,
}

impl Checker<'_> {
    fn wrong(&self, what: &'static str, value: String, allowed: &'static str) -> RegistryError {
        RegistryError::Value { file: self.file.to_owned(), place: self.place.clone(), what, value, allowed }
    }

    /// Returns an error if a value is not allowed. `what` is the name of the figure, and `allowed` the range for the
    /// error.
    fn number(
        &self,
        what: &'static str,
        value: f64,
        is_allowed: bool,
        allowed: &'static str,
    ) -> Result<(), RegistryError> {
        // In plain digits, other numbers could be hundreds of characters long.
        let is_plain = value == 0.0 || (1e-9..1e12).contains(&value.abs());
        let shown = if is_plain { value.to_string() } else { format!("{value:e}") };
        if is_allowed { Ok(()) } else { Err(self.wrong(what, shown, allowed)) }
    }

    /// Returns an error if a value is not in a range.
    fn within(&self, what: &'static str, value: f64, (range, allowed): Range) -> Result<(), RegistryError> {
        self.number(what, value, range.contains(&value), allowed)
    }

    /// Checks the figures of a drop.
    fn drop(&self, drop: &DropModel) -> Result<(), RegistryError> {
        let parameters = [("cache", drop.cache), ("memory", drop.memory), ("constant", drop.constant)];
        for (what, value) in parameters {
            match drop.fit {
                FitMethod::NonNegative => {
                    self.number(what, value, (0.0..=1.0 + ROUNDING).contains(&value), PARAMETER)?;
                }
                FitMethod::Lms => self.number(what, value, value.is_finite(), "a number")?,
            }
        }
        let sum = drop.cache + drop.memory + drop.constant;
        if drop.fit == FitMethod::NonNegative {
            self.number("cache + memory + constant", sum, sum <= 1.0 + ROUNDING, "a sum of at most 1")?;
        }
        if let DropShape::Saturating(half) = drop.shape {
            self.within("shape.saturating", half, HALF)?;
        }
        let errors = [("error", Some(drop.error)), ("held_out", drop.held_out), ("interval_95", drop.interval_95)];
        for (what, value) in errors {
            let value = value.unwrap_or(0.0);
            self.number(what, value, (0.0..f64::INFINITY).contains(&value), "0 or more")?;
        }
        Ok(())
    }

    /// Checks the name and the figures of a function.
    fn function(&mut self, name: &str, model: &FunctionModel) -> Result<(), RegistryError> {
        let shown = if name.len() > LONGEST { short(name) } else { name.escape_debug().to_string() };
        let place = format!("function '{shown}': ");
        self.place.clone_from(&place);
        if name.is_empty() || name.len() > LONGEST {
            return Err(self.wrong("its name", format!("{} bytes long", name.len()), "a name of 1 to 200 bytes"));
        }
        self.within("rates.local", model.rates.local, RATE)?;
        if let Some(rate) = model.rates.remote {
            self.within("rates.remote", rate, RATE)?;
        }
        self.within("metric", model.metric, METRIC)?;
        self.place = format!("{place}local.");
        self.drop(&model.local)?;
        if let Some(remote) = &model.remote {
            self.place = format!("{place}remote.");
            self.drop(remote)?;
            if remote.shape != model.local.shape {
                return Err(self.wrong("shape", format!("{:?}", remote.shape), "the shape of `local`"));
            }
        }
        Ok(())
    }
}

impl Registry {
    /// Checks all figures.
    ///
    /// # Errors
    /// Returns [`RegistryError::Schema`] if the version of the format is not [`SCHEMA`](super::SCHEMA), or
    /// [`RegistryError::Value`] if a figure is out of range. `file` is the name of the file for errors.
    pub fn check(&self, file: &str) -> Result<(), RegistryError> {
        let mut checker = Checker { file, place: String::new() };
        if self.schema != super::SCHEMA {
            return Err(RegistryError::Schema { file: file.to_owned(), found: self.schema.into() });
        }
        checker.within("limits.cache", self.limits.cache, LIMIT)?;
        checker.within("limits.memory", self.limits.memory, LIMIT)?;
        if let Some(link) = self.limits.link {
            checker.within("limits.link", link, LIMIT)?;
        }
        if let Some(cores) = self.limits.cores {
            let all = [("limits.cores.cache", Some(cores.cache)), ("limits.cores.memory", Some(cores.memory))];
            for (what, count) in all.into_iter().chain([("limits.cores.link", cores.link)]) {
                if let Some(count) = count.filter(|count| !(1..=MOST_CORES).contains(count)) {
                    return Err(checker.wrong(what, count.to_string(), "1 to 1000"));
                }
            }
        }
        self.functions.iter().try_for_each(|(name, model)| checker.function(name, model))
    }
}
