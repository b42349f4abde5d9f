//! A token: a random text that a client sends, of which the server knows only the hash.

use std::fs::File;
use std::io::{self, Read};

use sha2::{Digest, Sha256};

/// The beginning of every token, so that scanners for leaked secrets can find tokens.
pub const TOKEN_PREFIX: &str = "forebay_";

/// A new token. Its text is shown once and not kept.
pub struct Token(String);

impl Token {
    /// Makes a token with 256 random bits of the kernel.
    ///
    /// # Errors
    /// The kernel's random numbers cannot be read.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(format!("{TOKEN_PREFIX}{}", hexadecimal(&bytes))))
    }

    /// Returns the text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Returns the hash that the file of tokens contains.
    #[must_use]
    pub fn hash(&self) -> String {
        hexadecimal(&hash_of(&self.0))
    }
}

/// Returns the SHA-256 of a token's text.
#[must_use]
pub fn hash_of(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Returns bytes as lower-case hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_have_the_hash_of_their_text() {
        let (one, other) = (Token::random().expect("random bytes"), Token::random().expect("random bytes"));
        assert_ne!(one.text(), other.text());
        assert!(one.text().starts_with(TOKEN_PREFIX) && one.text().len() == TOKEN_PREFIX.len() + 64);
        assert_eq!(one.hash(), hexadecimal(&hash_of(one.text())));
        // FIPS 180-4, the example of one block.
        assert_eq!(hexadecimal(&hash_of("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
