//! JSON objects that are read as structs, from files and from the socket.

/// Checks that a JSON text is an object. serde would also read a list as a struct.
///
/// # Errors
/// A text that is not an object.
pub fn check_object(text: &[u8]) -> Result<(), serde_json::Error> {
    if text.trim_ascii_start().first() == Some(&b'{') {
        Ok(())
    } else {
        Err(serde::de::Error::custom("it is not a JSON object"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_object_is_accepted() {
        assert!(check_object(b" \n{}").is_ok());
        for text in [&b""[..], b"[1]", b"1"] {
            assert_eq!(check_object(text).expect_err("no object").to_string(), "it is not a JSON object");
        }
    }
}
