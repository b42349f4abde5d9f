//! Small pipelines for tests.

use forebay_protocol::{FlowLayout, Layout, ModuleLayout, SchedulerKind};
use forebay_units::Percentile;

/// Returns a layout with one worker and batches of up to 32 packets.
pub(crate) fn layout(modules: Vec<ModuleLayout>, flows: Vec<FlowLayout>) -> Layout {
    let scheduler = SchedulerKind::RunToCompletion;
    Layout { pipeline: "test".to_owned(), batch: 32, scheduler, workers: 1, modules, flows }
}

/// Returns a counter module that gets its packets from the modules `before`. If `before` is empty, packets enter the
/// pipeline there.
pub(crate) fn module(name: &str, before: &[usize]) -> ModuleLayout {
    ModuleLayout {
        name: name.to_owned(),
        function: "counter".to_owned(),
        leader: 0,
        before: before.to_vec(),
        entry: before.is_empty(),
        fixed: false,
        workers: vec![0],
        single: before.is_empty(),
    }
}

/// Returns a flow through these modules whose objective applies to 99 of 100 packets.
pub(crate) fn flow(name: &str, path: &[usize], slo_s: Option<f64>) -> FlowLayout {
    FlowLayout {
        name: name.to_owned(),
        path: path.to_vec(),
        slo_s,
        percentile: Percentile::default(),
        min_rate: None,
        min_rate_bits: None,
    }
}
