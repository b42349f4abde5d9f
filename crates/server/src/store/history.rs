//! Writing history: samples of 10 seconds.

use rusqlite::{Connection, OptionalExtension};

use super::{
    Store, StoreError, blob,
    sample::{Sample, SampleLayout},
    windows::{Group, close, window_of},
};

/// The last sample of an instance.
pub(super) struct LastSample {
    group: Group,
    layout: SampleLayout,
}

const LAST: &str = "
SELECT instances.id, layouts.id, ten_seconds.at, layouts.names
FROM instances
JOIN ten_seconds ON ten_seconds.instance = instances.id
JOIN layouts ON layouts.id = ten_seconds.layout
WHERE instances.name = ?1 ORDER BY ten_seconds.at DESC, ten_seconds.id DESC LIMIT 1";

impl LastSample {
    /// Reads the last sample of an instance from the database.
    fn read(connection: &Connection, instance: &str) -> Result<Option<Self>, StoreError> {
        let mut statement = connection.prepare_cached(LAST)?;
        let last = statement.query_row((instance,), |row| {
            let group = Group { instance: row.get(0)?, layout: row.get(1)?, begin: window_of(row.get(2)?) };
            // Damaged names equal no layout, so the next sample gets a new one.
            let layout = blob::decode_layout(row.get_ref(3)?.as_blob()?).unwrap_or_default();
            Ok(Self { group, layout })
        });
        Ok(last.optional()?)
    }
}

impl Store {
    /// Adds the sample of the 10 seconds that ended at `at`, in milliseconds since 1970.
    ///
    /// # Errors
    /// Returns an error if the sample does not have the modules and flows of the layout, or cannot be written.
    pub fn add_sample(
        &mut self,
        instance: &str,
        at: i64,
        layout: &SampleLayout,
        sample: &Sample,
    ) -> Result<(), StoreError> {
        let (modules, flows) = (sample.modules.len(), sample.flows.len());
        let (layout_modules, layout_flows) = (layout.modules.len(), layout.flows.len());
        if (modules, flows) != (layout_modules, layout_flows) {
            return Err(StoreError::Mismatch { modules, flows, layout_modules, layout_flows });
        }
        let encoded = blob::encode(sample).map_err(|error| StoreError::Encoding(error.to_string()))?;
        let transaction = self.connection.transaction()?;
        // Taken out, so that an error leaves none: the next sample reads it from the database.
        let last = match self.last.remove(instance) {
            Some(last) => Some(last),
            None => LastSample::read(&transaction, instance)?,
        };
        let number = match &last {
            Some(last) => last.group.instance,
            None => instance_number(&transaction, instance)?,
        };
        let layout_number = match &last {
            Some(last) if last.layout == *layout => last.group.layout,
            _ => layout_number(&transaction, number, layout)?,
        };
        let group = Group { instance: number, layout: layout_number, begin: window_of(at) };
        if let Some(last) = &last
            && last.group != group
        {
            close(&transaction, last.group)?;
        }
        transaction
            .prepare_cached("INSERT INTO ten_seconds (instance, at, layout, sample) VALUES (?1, ?2, ?3, ?4)")?
            .execute((number, at, layout_number, encoded))?;
        transaction.commit()?;
        let layout = match last {
            Some(last) if last.layout == *layout => last.layout,
            _ => layout.clone(),
        };
        self.last.insert(instance.to_owned(), LastSample { group, layout });
        Ok(())
    }

    /// Returns the names of the instances that have history, sorted.
    ///
    /// # Errors
    /// Returns an error if the names cannot be read.
    pub fn instances_with_history(&mut self) -> Result<Vec<String>, StoreError> {
        let mut statement = self.connection.prepare_cached("SELECT name FROM instances ORDER BY name")?;
        let names = statement.query_map([], |row| row.get(0))?;
        Ok(names.collect::<Result<_, _>>()?)
    }
}

/// Returns the number of an instance, and gives it one if it has none.
fn instance_number(connection: &Connection, name: &str) -> Result<i64, StoreError> {
    let mut statement = connection.prepare_cached("SELECT id FROM instances WHERE name = ?1")?;
    if let Some(number) = statement.query_row((name,), |row| row.get(0)).optional()? {
        return Ok(number);
    }
    Ok(connection.prepare_cached("INSERT INTO instances (name) VALUES (?1)")?.insert((name,))?)
}

/// Returns the number of an instance's layout, and gives it one if it has none.
fn layout_number(connection: &Connection, instance: i64, layout: &SampleLayout) -> Result<i64, StoreError> {
    let names = blob::encode_layout(layout).map_err(|error| StoreError::Encoding(error.to_string()))?;
    let mut statement = connection.prepare_cached("SELECT id FROM layouts WHERE instance = ?1 AND names = ?2")?;
    if let Some(number) = statement.query_row((instance, &names), |row| row.get(0)).optional()? {
        return Ok(number);
    }
    let mut statement = connection.prepare_cached("INSERT INTO layouts (instance, names) VALUES (?1, ?2)")?;
    Ok(statement.insert((instance, &names))?)
}
