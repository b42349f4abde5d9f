//! Parameters of functions that encrypt: keys and the choice of implementation. No error shows a key.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use forebay_aead::{Backend, Material};
use forebay_graph::files::read_text;
use forebay_graph::secret::is_key;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;
use zeroize::Zeroizing;

/// The largest size of a key file, in bytes.
const MOST: u64 = 4_096;

/// A text that is never shown.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(not shown)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A value of another type is not shown either: YAML reads a key of digits alone as a number.
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self(Zeroizing::new(text))),
            _ => Err(de::Error::custom("the value (not shown) is not text: write it in quotes")),
        }
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // `x-secret` makes errors about the surrounding mapping or list quote nothing, because a key may be misplaced
        // anywhere in it.
        json_schema!({ "type": "string", "x-secret": true })
    }
}

/// The implementation that encrypts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Implementation {
    /// The processor's AES instructions.
    Hardware,
    /// Software, without AES instructions.
    Software,
    /// The processor's AES instructions if it has them, otherwise software.
    #[default]
    Auto,
}

impl Implementation {
    pub(crate) fn backend(self) -> Backend {
        match self {
            Self::Hardware => Backend::Hardware,
            Self::Software => Backend::Software,
            Self::Auto => Backend::Auto,
        }
    }
}

/// Returns a file's name as errors show it: the name of an existing file, or a name with an extension. Any other word
/// may be a misplaced key and is not shown.
pub(crate) fn file_name<'n>(name: &'n str, path: &Path) -> &'n str {
    let is_name = path.extension().is_some_and(|extension| !is_key(&extension.to_string_lossy())) && !is_key(name);
    if is_name || path.exists() { name } else { "(name not shown: it may be a key)" }
}

/// Reads a key from a file, which must have one line with hexadecimal digits. Empty lines and comments are skipped.
/// `name` is the file's name in the configuration. An error does not show the content of the file.
pub(crate) fn read_key(name: &str, path: &Path) -> Result<Material, String> {
    let name = file_name(name, path);
    let bytes = read_text(path, MOST).map_err(|error| format!("cannot read '{name}': {error}"))?;
    let bytes = Zeroizing::new(bytes);
    let text =
        std::str::from_utf8(&bytes).map_err(|_| format!("'{name}' is not text: write the key's hexadecimal digits"))?;
    let lines = || text.lines().map(str::trim_ascii).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let line = lines().next().ok_or_else(|| format!("'{name}' has no key: write its hexadecimal digits"))?;
    if lines().nth(1).is_some() {
        return Err(format!("'{name}' has several keys: allowed is one key per file"));
    }
    Material::from_hex(line).map_err(|error| format!("'{name}': {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_shown_nowhere() {
        let secret: Secret = serde_json::from_value(json!("0011")).expect("a text");
        assert_eq!((format!("{secret:?}"), secret.text()), ("(not shown)".to_owned(), "0011"));
        let error = serde_json::from_value::<Secret>(json!(1_122_334_455)).expect_err("a number").to_string();
        assert!(error.contains("in quotes") && !error.contains("112233"), "{error}");
    }

    #[test]
    fn a_file_has_one_key() {
        let folder = std::env::temp_dir().join(format!("forebay-keys-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for temporary files");
        let read = |text: &str| {
            let path = folder.join("one.key");
            std::fs::write(&path, text).expect("a writable file");
            read_key("one.key", &path)
        };
        assert_eq!(read("# of the first site\n\n 00ff \n").expect("a key").bytes(), [0, 255]);
        for (text, message) in [
            ("", "'one.key' has no key"),
            ("00\n11\n", "'one.key' has several keys"),
            ("001122zz", "'one.key': byte 7 of the key is not a hexadecimal digit"),
            ("001", "'one.key': the key has 3 hexadecimal digits"),
        ] {
            let error = read(text).expect_err(message);
            assert!(error.contains(message) && !error.contains("zz"), "{error}");
        }
        let error = read_key("none.key", &folder.join("none.key")).expect_err("no such file");
        assert!(error.starts_with("cannot read 'none.key'"), "{error}");
        // Regression: the error said "longer than 0 MiB".
        let error = read(&"0".repeat(5_000)).expect_err("too long");
        assert_eq!(error, "cannot read 'one.key': it is longer than 4 KiB: it has 4.9 KiB");
        std::fs::remove_dir_all(&folder).expect("the folder exists");
    }
}
