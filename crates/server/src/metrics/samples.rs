//! Adds samples to families. Values that do not exist are left out.

use super::model::{Family, Histogram, Sample, Value};
use super::table::{FamilyId, all_families};

/// The samples of all instances and of the server.
pub(super) struct Samples<'i> {
    families: Vec<Family>,
    /// The instance whose samples are added; `None` for the server.
    instance: Option<&'i str>,
}

impl<'i> Samples<'i> {
    /// Begins with the samples of the server.
    pub(super) fn new() -> Self {
        Self { families: all_families(), instance: None }
    }

    /// Goes on to the samples of an instance.
    pub(super) fn of_instance(&mut self, name: &'i str) {
        self.instance = Some(name);
    }

    /// Returns the families that have samples.
    pub(super) fn finish(mut self) -> Vec<Family> {
        self.families.retain(|family| !family.samples.is_empty());
        self.families
    }

    /// Adds a count.
    pub(super) fn count(&mut self, id: FamilyId, labels: &[(&'static str, &str)], count: u64) {
        self.add(id, labels, Value::Count(count));
    }

    /// Adds a number, if it is finite.
    pub(super) fn number(&mut self, id: FamilyId, labels: &[(&'static str, &str)], number: f64) {
        if number.is_finite() {
            self.add(id, labels, Value::Number(number));
        }
    }

    /// Adds a number, if there is one.
    pub(super) fn some(&mut self, id: FamilyId, labels: &[(&'static str, &str)], number: Option<f64>) {
        if let Some(number) = number {
            self.number(id, labels, number);
        }
    }

    /// Adds 1 for true and 0 for false, if there is a value.
    pub(super) fn flag(&mut self, id: FamilyId, labels: &[(&'static str, &str)], flag: Option<bool>) {
        self.some(id, labels, flag.map(|flag| f64::from(u8::from(flag))));
    }

    /// Adds labels without a value of their own.
    pub(super) fn info(&mut self, id: FamilyId, labels: &[(&'static str, &str)]) {
        self.count(id, labels, 1);
    }

    /// Adds a distribution.
    pub(super) fn distribution(&mut self, id: FamilyId, labels: &[(&'static str, &str)], histogram: Histogram) {
        self.add(id, labels, Value::Distribution(histogram));
    }

    fn add(&mut self, id: FamilyId, labels: &[(&'static str, &str)], value: Value) {
        let instance = self.instance.map(|name| ("instance", name.to_owned()));
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned()));
        let labels = instance.into_iter().chain(labels).collect();
        self.families[id as usize].samples.push(Sample { labels, value });
    }
}
