//! Shared code of encryption tests: an independent implementation.

#![cfg(test)]

use std::io::Write;
use std::process::{Command, Stdio};

use forebay_frames::skip;

/// A key, a nonce, associated data, a text.
pub(crate) type Case = (Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>);

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn bytes(digits: &str) -> Vec<u8> {
    forebay_aead::Material::from_hex(digits).expect("digits").bytes().to_vec()
}

/// Encrypts texts with Python's `cryptography`, which uses OpenSSL, and returns each with its tag. If the package is
/// not installed, reports that and returns `None`.
pub(crate) fn by_openssl(cases: &[Case]) -> Option<Vec<Vec<u8>>> {
    const SCRIPT: &str = "\
import sys
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
for line in sys.stdin:
    key, nonce, associated, text = (bytes.fromhex(word) for word in line.rstrip('\\n').split(','))
    print(AESGCM(key).encrypt(nonce, text, associated).hex())
";
    let python = |code: &str| {
        let mut command = Command::new("python3");
        command.args(["-c", code]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    };
    let installed = python("import cryptography").status().is_ok_and(|status| status.success());
    if !installed {
        skip("Python's 'cryptography' is not installed");
        return None;
    }
    let mut child = python(SCRIPT).spawn().expect("it is installed");
    let lines: String = cases
        .iter()
        .map(|(key, nonce, associated, text)| {
            format!("{},{},{},{}\n", hex(key), hex(nonce), hex(associated), hex(text))
        })
        .collect();
    let mut input = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("the process ends");
    writer.join().expect("the writer does not panic").expect("the process reads its input");
    assert!(output.status.success(), "{}", output.status);
    Some(String::from_utf8_lossy(&output.stdout).lines().map(bytes).collect())
}
