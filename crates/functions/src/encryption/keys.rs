//! Keys by id, as configurations list them.

use forebay_aead::{Backend, Key, Material, MaterialError};
use forebay_graph::{Gate, Setup, SetupError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::settings::{Secret, read_key};

/// The parameter that faults name.
const PATH: &str = "keys";

/// A key.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeySettings {
    /// What packets say which key they are encrypted under by, 0 to 255.
    pub(crate) id: u8,
    /// The key: 32 hexadecimal digits for AES-128, 64 for AES-256.
    key: Option<Secret>,
    /// Instead of it the name of a file that has the digits, relative to the configuration.
    file: Option<String>,
}

/// What becomes of packets that are not UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Others {
    /// They are dropped.
    #[default]
    Drop,
    /// They pass as they are.
    Pass,
}

impl Others {
    /// Where they go; `drop` for what is dropped.
    pub(crate) fn gate(self, drop: Gate) -> Gate {
        if self == Self::Drop { drop } else { Gate::FIRST }
    }
}

/// Reads the keys and makes them ready.
pub(crate) fn read_keys(
    settings: &[KeySettings],
    backend: Backend,
    setup: &Setup<'_>,
) -> Result<Vec<(u8, Material, Key)>, SetupError> {
    if settings.is_empty() {
        return Err(SetupError::at(PATH, "there is none: allowed are 1 to 256, such as { id: 1, file: site.key }"));
    }
    let backend = backend.resolve().map_err(|error| SetupError::at("backend", error.to_string()))?;
    let mut faults = SetupError::default();
    let mut keys: Vec<(u8, Material, Key)> = Vec::with_capacity(settings.len());
    for (index, one) in settings.iter().enumerate() {
        match one.read(backend, setup) {
            Err((field, message)) => faults.and(SetupError::at(format!("{PATH}[{index}]{field}"), message)),
            Ok((material, key)) => match keys.iter().find(|(id, known, _)| *id == one.id || *known == material) {
                Some((id, ..)) if *id == one.id => {
                    faults.and(SetupError::at(format!("{PATH}[{index}].id"), format!("{id} is another key's already")));
                }
                // Whoever changed the id of a packet would not be noticed.
                Some((id, ..)) => {
                    faults.and(SetupError::at(
                        format!("{PATH}[{index}]"),
                        format!("it is the same key as that of id {id}"),
                    ));
                }
                None => keys.push((one.id, material, key)),
            },
        }
    }
    if faults.faults.is_empty() { Ok(keys) } else { Err(faults) }
}

/// What is wrong with digits that may have been meant for the name of a file.
fn of_file(error: &MaterialError) -> String {
    format!("{error}; a file that has it is named by `file`, as in {{ id: 1, file: site.key }}")
}

impl KeySettings {
    /// The key, or the field and what is wrong with it.
    fn read(&self, backend: Backend, setup: &Setup<'_>) -> Result<(Material, Key), (&'static str, String)> {
        let (field, material) = match (&self.key, &self.file) {
            (Some(key), None) => (".key", Material::from_hex(key.text()).map_err(|error| (".key", of_file(&error)))?),
            (None, Some(file)) => (".file", read_key(file, &setup.path(file)).map_err(|message| (".file", message))?),
            _ => return Err(("", "give either 'key' or the name of a 'file' that has it".to_owned())),
        };
        let key = Key::new(&material, backend).map_err(|error| (field, error.to_string()))?;
        Ok((material, key))
    }
}
