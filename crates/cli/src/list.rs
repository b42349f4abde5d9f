//! `forebay list`: lists functions, ports, state, use cases, controllers and running pipelines.

use std::io::Write;

use serde_json::{Value, json};

use crate::args::ListSubject;
use crate::format::{Align, table};
use crate::printed;

/// Prints the list.
pub(crate) fn list(what: ListSubject, as_json: bool) -> anyhow::Result<()> {
    let listed: Vec<(&str, &str)> = match what {
        ListSubject::Running => return crate::remote::list(as_json),
        ListSubject::Functions => forebay_graph::functions().into_iter().map(|it| (it.name, it.summary)).collect(),
        ListSubject::Ports => forebay_graph::ports().into_iter().map(|it| (it.name, it.summary)).collect(),
        ListSubject::State => forebay_graph::states().into_iter().map(|it| (it.name, it.summary)).collect(),
        ListSubject::Usecases => forebay_pipeline::usecases().iter().map(|it| (it.name, it.summary)).collect(),
        ListSubject::Controllers => forebay_graph::controllers().into_iter().map(|it| (it.name, it.summary)).collect(),
    };
    let mut out = printed::out();
    if as_json {
        let listed: Vec<Value> =
            listed.iter().map(|(name, summary)| json!({ "name": name, "summary": summary })).collect();
        writeln!(out, "{}", Value::from(listed))?;
        return Ok(());
    }
    let rows: Vec<_> = listed.iter().map(|(name, summary)| vec![(*name).to_owned(), (*summary).to_owned()]).collect();
    write!(out, "{}", table(&[("name", Align::Left), ("description", Align::Left)], &rows))?;
    Ok(())
}
