//! Reading history: the figures of one pipeline, module or flow over time, in columns.
//!
//! The layout of a row says at which index the module or flow is. Only its figures are decoded, so that a query over
//! 24 hours of a large pipeline is quick.

use std::collections::HashMap;

use rusqlite::Connection;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Store, StoreError,
    blob::{self, BlobError, EncodedSample},
    sample::SampleLayout,
    sums::{FlowSum, ModuleSum, TotalSum},
};

/// The length of the intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Resolution {
    /// 10 seconds, kept for 24 hours.
    #[serde(rename = "10s")]
    TenSeconds,
    /// 5 minutes, kept for 7 days. The present 5 minutes are missing until they have ended.
    #[serde(rename = "5m")]
    FiveMinutes,
}

impl Resolution {
    /// Returns the table of the rows.
    pub(super) fn table(self) -> &'static str {
        match self {
            Self::TenSeconds => "ten_seconds",
            Self::FiveMinutes => "five_minutes",
        }
    }
}

/// The subject of a query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The whole pipeline.
    Total,
    /// The module of this name.
    Module(String),
    /// The flow of this name.
    Flow(String),
}

/// A query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryQuery {
    /// The name of the instance.
    pub instance: String,
    /// The pipeline, module or flow whose figures are read.
    pub subject: Subject,
    /// The time of the first row, at the earliest, in milliseconds since 1970.
    pub from: i64,
    /// The end: all rows are before it, in milliseconds since 1970.
    pub to: i64,
    /// The length of the intervals.
    pub resolution: Resolution,
    /// The largest number of rows.
    pub most: usize,
}

/// The response to a query: rows in the order of time, by column. All columns have the same length.
///
/// There is no row for a time without a sample, or at which the module or flow did not exist.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct History {
    /// The length of the intervals.
    pub resolution: Resolution,
    /// The times, in milliseconds since 1970: the end of 10 seconds, or the beginning of 5 minutes that is a multiple
    /// of 5 minutes. No time is repeated.
    pub at: Vec<i64>,
    /// The time that the figures cover, in seconds. It is shorter if the instance or server did not run all the time.
    pub interval_s: Vec<Option<f32>>,
    /// The figures.
    pub figures: Figures,
    /// The time of the next row, if there are more rows than requested: the `from` of the next query.
    pub next: Option<i64>,
}

/// The figures of a [`Subject`].
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Figures {
    /// The figures of the whole pipeline.
    Total(TotalFigures),
    /// The figures of a module.
    Module(ModuleFigures),
    /// The figures of a flow.
    Flow(FlowFigures),
}

/// The figures of a pipeline, by column.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct TotalFigures {
    /// Packets that entered.
    pub entered: Vec<Option<u64>>,
    /// Packets that left.
    pub out: Vec<Option<u64>>,
    /// Packets that the pipeline dropped, and those that were lost before they entered.
    pub dropped: Vec<Option<u64>>,
    /// For each worker, a column of the shares of time in which it had something to do. `null` at times at which the
    /// pipeline had fewer workers.
    pub busy: Vec<Vec<Option<f32>>>,
}

/// The figures of a module, by column.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ModuleFigures {
    /// Packets processed.
    pub packets: Vec<Option<u64>>,
    /// Packets dropped.
    pub dropped: Vec<Option<u64>>,
    /// Calls.
    pub batches: Vec<Option<u64>>,
    /// Ticks per packet. `null` if no call was timed. In 5 minutes, the mean by packets.
    pub ticks_per_packet: Vec<Option<f32>>,
}

/// The figures of a flow, by column.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct FlowFigures {
    /// Packets that left.
    pub packets: Vec<Option<u64>>,
    /// Packets above the delay objective.
    pub violations: Vec<Option<u64>>,
    /// The median delay, in microseconds. In 5 minutes, the mean of the medians by packets.
    pub p50_us: Vec<Option<f32>>,
    /// The 99th percentile of the delay, in microseconds. In 5 minutes, the largest.
    pub p99_us: Vec<Option<f32>>,
    /// The delay at the percentile of the objective, in microseconds. In 5 minutes, the largest.
    pub chosen_us: Vec<Option<f32>>,
}

/// The columns so far, and the sum of the samples of the next row.
enum Columns {
    Total(TotalFigures),
    Module(ModuleFigures, ModuleSum),
    Flow(FlowFigures, FlowSum),
}

/// The index of the subject in a layout, and the number of its elements.
type Position = (usize, usize);

impl Columns {
    fn of(subject: &Subject) -> Self {
        match subject {
            Subject::Total => Self::Total(TotalFigures::default()),
            Subject::Module(_) => Self::Module(ModuleFigures::default(), ModuleSum::default()),
            Subject::Flow(_) => Self::Flow(FlowFigures::default(), FlowSum::default()),
        }
    }

    /// Adds a sample to the next row.
    fn add(&mut self, sample: &EncodedSample<'_>, (index, count): Position) -> Result<(), BlobError> {
        match self {
            Self::Total(_) => {}
            Self::Module(_, sum) => sum.add(&sample.module(index, count)?),
            Self::Flow(_, sum) => sum.add(&sample.flow(index, count)?),
        }
        Ok(())
    }

    /// Ends a row. `rows` is the number of rows before it.
    fn end_row(&mut self, total: &TotalSum, rows: usize) {
        match self {
            Self::Total(columns) => {
                columns.entered.push(Some(total.entered));
                columns.out.push(Some(total.out));
                columns.dropped.push(Some(total.dropped));
                if columns.busy.len() < total.busy.len() {
                    columns.busy.resize(total.busy.len(), vec![None; rows]);
                }
                for (worker, column) in columns.busy.iter_mut().enumerate() {
                    column.push(total.busy.get(worker).and_then(|share| share.value()));
                }
            }
            Self::Module(columns, sum) => {
                let point = std::mem::take(sum).point();
                columns.packets.push(Some(point.packets));
                columns.dropped.push(Some(point.dropped));
                columns.batches.push(Some(point.batches));
                columns.ticks_per_packet.push(point.ticks_per_packet);
            }
            Self::Flow(columns, sum) => {
                let point = std::mem::take(sum).point();
                columns.packets.push(Some(point.packets));
                columns.violations.push(Some(point.violations));
                columns.p50_us.push(point.p50_us);
                columns.p99_us.push(point.p99_us);
                columns.chosen_us.push(point.chosen_us);
            }
        }
    }

    fn figures(self) -> Figures {
        match self {
            Self::Total(columns) => Figures::Total(columns),
            Self::Module(columns, _) => Figures::Module(columns),
            Self::Flow(columns, _) => Figures::Flow(columns),
        }
    }
}

/// Returns the position of the subject in a layout. The position of the whole pipeline is not used.
fn position(subject: &Subject, layout: &SampleLayout) -> Option<Position> {
    let find = |names: &[String], name: &String| Some((names.iter().position(|one| one == name)?, names.len()));
    match subject {
        Subject::Total => Some((0, 0)),
        Subject::Module(name) => find(&layout.modules, name),
        Subject::Flow(name) => find(&layout.flows, name),
    }
}

fn read_layout(connection: &Connection, number: i64) -> Result<SampleLayout, StoreError> {
    let mut statement = connection.prepare_cached("SELECT names FROM layouts WHERE id = ?1")?;
    let bytes: Vec<u8> = statement.query_row((number,), |row| row.get(0))?;
    blob::decode_layout(&bytes).map_err(|error| {
        let reason = error.to_string();
        StoreError::Damaged { table: "layouts", row: number, reason }
    })
}

/// The rows of a response while they are read.
struct PartialHistory {
    at: Vec<i64>,
    interval_s: Vec<Option<f32>>,
    columns: Columns,
    /// The sum of the samples at the last time in `at`, until the row has ended.
    total: Option<TotalSum>,
}

impl PartialHistory {
    fn of(subject: &Subject) -> Self {
        Self { at: Vec::new(), interval_s: Vec::new(), columns: Columns::of(subject), total: None }
    }

    /// Adds an encoded sample to the last row.
    fn add(&mut self, bytes: &[u8], position: Position) -> Result<(), BlobError> {
        let sample = EncodedSample::read(bytes)?;
        let counts = [sample.entered, sample.out, sample.dropped];
        self.total.get_or_insert_default().add(sample.interval_s(), counts, sample.busy());
        self.columns.add(&sample, position)
    }

    /// Ends the last row if it has not ended.
    fn end_row(&mut self) {
        if let Some(total) = self.total.take() {
            self.columns.end_row(&total, self.interval_s.len());
            self.interval_s.push(Some(total.interval_s as f32));
        }
    }
}

impl Store {
    /// Returns the rows of a query. An instance without history has no rows.
    ///
    /// Rows with the same time are added up: 5 minutes in which the configuration changed have a row for each layout.
    ///
    /// # Errors
    /// Returns an error if a row cannot be read. The error of a damaged row names it.
    pub fn history(&mut self, query: &HistoryQuery) -> Result<History, StoreError> {
        let mut history = PartialHistory::of(&query.subject);
        let next = self.read_rows(query, &mut history)?;
        history.end_row();
        let PartialHistory { at, interval_s, columns, .. } = history;
        Ok(History { resolution: query.resolution, at, interval_s, figures: columns.figures(), next })
    }

    /// Reads the rows of a query. Returns the time of the first row above the largest number of rows.
    fn read_rows(&self, query: &HistoryQuery, history: &mut PartialHistory) -> Result<Option<i64>, StoreError> {
        let table = query.resolution.table();
        let sql = format!(
            "SELECT rows.id, at, layout, sample FROM {table} AS rows JOIN instances ON instances.id = instance \
             WHERE name = ?1 AND at >= ?2 AND at < ?3 ORDER BY at"
        );
        let mut positions: HashMap<i64, Option<Position>> = HashMap::new();
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query((&query.instance, query.from, query.to))?;
        while let Some(row) = rows.next()? {
            let (id, at, layout): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let found = match positions.get(&layout) {
                Some(known) => *known,
                None => {
                    let found = position(&query.subject, &read_layout(&self.connection, layout)?);
                    positions.insert(layout, found);
                    found
                }
            };
            let Some(found) = found else { continue };
            if history.at.last() != Some(&at) {
                if history.at.len() >= query.most {
                    return Ok(Some(at));
                }
                history.end_row();
                history.at.push(at);
            }
            let bytes = row.get_ref(3)?.as_blob().map_err(rusqlite::Error::from)?;
            history.add(bytes, found).map_err(|error| StoreError::Damaged {
                table,
                row: id,
                reason: error.to_string(),
            })?;
        }
        Ok(None)
    }
}
