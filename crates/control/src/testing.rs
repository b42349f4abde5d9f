//! Small pipelines for tests: what they do not say themselves.

use forebay_graph::{FlowLayout, Layout, ModuleLayout, Percentile, SchedulerKind};

/// On one worker, in batches of up to 32.
pub(crate) fn layout(modules: Vec<ModuleLayout>, flows: Vec<FlowLayout>) -> Layout {
    let scheduler = SchedulerKind::RunToCompletion;
    Layout { pipeline: "test".to_owned(), batch: 32, scheduler, workers: 1, modules, flows }
}

/// A counter behind others; where there are none, packets enter there.
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

/// A flow through some modules, whose objective counts for 99 of 100 packets.
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
