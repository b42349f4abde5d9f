//! What tests of encryption share: another implementation, which is not of this program.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::tunnel::testing::skip;

/// A key, a nonce, associated bytes, a text.
pub(crate) type Case = (Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>);

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn bytes(digits: &str) -> Vec<u8> {
    forebay_aead::Material::from_hex(digits).expect("digits").bytes().to_vec()
}

/// What Python's `cryptography`, which is OpenSSL, makes of texts: each encrypted, with its tag. `None` where it is not
/// installed, which is said.
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
    let there = python("import cryptography").status().is_ok_and(|status| status.success());
    if !there {
        skip("Python's 'cryptography' is not installed");
        return None;
    }
    let mut child = python(SCRIPT).spawn().expect("it was there");
    let lines: String = cases
        .iter()
        .map(|(key, nonce, associated, text)| {
            format!("{},{},{},{}\n", hex(key), hex(nonce), hex(associated), hex(text))
        })
        .collect();
    let mut input = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("it does not panic").expect("it was read");
    assert!(output.status.success(), "{}", output.status);
    Some(String::from_utf8_lossy(&output.stdout).lines().map(bytes).collect())
}
