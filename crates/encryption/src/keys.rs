//! Keys by id, as configurations list them.

use forebay_aead::{Backend, Key, Material, MaterialError};
use forebay_graph::{Gate, Setup, SetupError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::settings::{Secret, read_key};

/// The parameter named in errors.
const PATH: &str = "keys";

/// A key.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeySettings {
    /// The number of the key, which each packet carries, 0 to 255.
    pub(crate) id: u8,
    /// The key: 32 hexadecimal digits for AES-128, 64 for AES-256.
    key: Option<Secret>,
    /// Instead of `key`: the name of a file that contains the digits, relative to the configuration.
    file: Option<String>,
}

/// The action for packets that are not UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Others {
    /// They are dropped.
    #[default]
    Drop,
    /// They pass unchanged.
    Pass,
}

impl Others {
    /// Returns the gate of packets that are not UDP. `drop` is the gate that drops them.
    pub(crate) fn gate(self, drop: Gate) -> Gate {
        if self == Self::Drop { drop } else { Gate::FIRST }
    }
}

/// Reads the keys and prepares them for `backend`. Returns each with its id. An error lists every fault: no two keys
/// may have the same id or the same digits.
pub(crate) fn read_keys(
    settings: &[KeySettings],
    backend: Backend,
    setup: &Setup<'_>,
) -> Result<Vec<(u8, Material, Key)>, SetupError> {
    if settings.is_empty() {
        return Err(SetupError::wrong(
            PATH,
            "0 keys",
            "the list is empty",
            "1 to 256 keys, such as { id: 1, file: site.key }",
        ));
    }
    let backend = backend.resolve().map_err(|error| SetupError::at("backend", error.to_string()))?;
    let mut faults = SetupError::default();
    let mut keys: Vec<(u8, Material, Key)> = Vec::with_capacity(settings.len());
    for (index, one) in settings.iter().enumerate() {
        match one.read(backend, setup) {
            Err((field, message)) => faults.and(SetupError::at(format!("{PATH}[{index}]{field}"), message)),
            Ok((material, key)) => match keys.iter().find(|(id, known, _)| *id == one.id || *known == material) {
                Some((id, ..)) if *id == one.id => {
                    let wrong = format!("{id} is used by another key");
                    let hint = "give each key its own id";
                    faults.and(SetupError::with_hint(format!("{PATH}[{index}].id"), wrong, hint));
                }
                // A changed id in a packet would not be detected if both ids had the same key.
                Some((id, ..)) => {
                    let wrong = format!("the key is the same as that of id {id}");
                    faults.and(SetupError::with_hint(format!("{PATH}[{index}]"), wrong, "use another key"));
                }
                None => keys.push((one.id, material, key)),
            },
        }
    }
    if faults.faults.is_empty() { Ok(keys) } else { Err(faults) }
}

/// Returns an error about digits, with a hint in case the user meant the name of a file.
fn of_file(error: &MaterialError) -> String {
    format!("{error}; to read the key from a file, write `file`, as in {{ id: 1, file: site.key }}")
}

impl KeySettings {
    /// Returns the key. An error contains the path of the wrong field within this section (such as `.key`), and a
    /// message.
    fn read(&self, backend: Backend, setup: &Setup<'_>) -> Result<(Material, Key), (&'static str, String)> {
        let (field, material) = match (&self.key, &self.file) {
            (Some(key), None) => (".key", Material::from_hex(key.text()).map_err(|error| (".key", of_file(&error)))?),
            (None, Some(file)) => {
                let path = setup.path("", file).map_err(|error| (".file", error.to_string()))?;
                (".file", read_key(file, &path).map_err(|message| (".file", message))?)
            }
            _ => {
                return Err((
                    "",
                    "give either 'key', or 'file' with the name of a file that contains the key".to_owned(),
                ));
            }
        };
        let key = Key::new(&material, backend).map_err(|error| (field, error.to_string()))?;
        Ok((material, key))
    }
}
