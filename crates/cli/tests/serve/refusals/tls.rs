//! TLS: addresses that other machines can reach, certificates of clients, and certificates that are replaced.

use std::io::{Cursor, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;

use crate::http::{Response, connect, read, request};
use crate::server::{Pipeline, Server, Tokens, folder, give, wait_for};

/// Certificates in a folder, made by OpenSSL.
struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Makes two authorities, `one` and `two`, and a certificate of the server. Prints why the test is skipped, if
    /// OpenSSL is missing.
    fn make(folder: &Path, test: &str) -> Option<Self> {
        let version = Command::new("openssl").arg("version").output();
        let is_new = |text: &[u8]| text.starts_with(b"OpenSSL ") && !text.starts_with(b"OpenSSL 1");
        if !version.is_ok_and(|version| is_new(&version.stdout)) {
            crate::print(&format!("skipped: {test}: openssl 3 or later is missing"));
            return None;
        }
        let certificates = Self { folder: folder.to_owned() };
        for authority in ["one", "two"] {
            certificates.openssl(authority, &["-subj", &format!("/CN={authority}")]);
        }
        certificates.issue("site", "one");
        Some(certificates)
    }

    fn path(&self, file: &str) -> String {
        self.folder.join(file).display().to_string()
    }

    /// Makes a key and a certificate.
    fn openssl(&self, name: &str, more: &[&str]) {
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]);
        command.args(["-keyout", &self.path(&format!("{name}.key")), "-out", &self.path(&format!("{name}.pem"))]);
        let output = command.args(more).output().expect("it is installed");
        assert!(output.status.success(), "{output:?}");
    }

    /// Makes a certificate of an authority, and a key that the server can read.
    fn issue(&self, name: &str, authority: &str) {
        let (certificate, key) = (self.path(&format!("{authority}.pem")), self.path(&format!("{authority}.key")));
        let own = self.folder.join(format!("{name}.key"));
        // A key from before belongs to the user of the server.
        let _ = std::fs::remove_file(&own);
        let names = "subjectAltName=DNS:localhost,IP:127.0.0.1";
        let no_authority = "basicConstraints=critical,CA:FALSE";
        let subject = format!("/CN={name}");
        self.openssl(
            name,
            &["-subj", &subject, "-CA", &certificate, "-CAkey", &key, "-addext", names, "-addext", no_authority],
        );
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o600)).expect("own file");
        give(&own);
    }

    /// Returns the settings of a server.
    fn settings(&self, tokens: &Tokens, more: &str) -> String {
        let (certificate, key) = (self.path("site.pem"), self.path("site.key"));
        format!("{}\ntls: {{ certificate: '{certificate}', key: '{key}'{more} }}", tokens.setting())
    }

    /// Sends bytes over TLS as a client that trusts `authority`. Returns the output of OpenSSL.
    fn send(&self, server: &Server, authority: &str, more: &[&str], bytes: &str) -> Output {
        let port = server.address.rsplit(':').next().expect("a port");
        let mut command = Command::new("openssl");
        command.args(["s_client", "-quiet", "-verify_return_error", "-servername", "localhost", "-connect"]);
        command.arg(format!("127.0.0.1:{port}")).args(["-CAfile", &self.path(&format!("{authority}.pem"))]).args(more);
        let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut client = streams.spawn().expect("it is installed");
        // The client ends at once if it does not trust the server.
        let _ = client.stdin.take().expect("piped").write_all(bytes.as_bytes());
        client.wait_with_output().expect("it ends")
    }

    /// Sends a request without a body over TLS; `None` if there is no response.
    fn get(&self, server: &Server, authority: &str, more: &[&str], path: &str, token: &str) -> Option<Response> {
        let authorization = format!("Bearer {token}");
        let mut headers = vec![("Connection", "close")];
        if !token.is_empty() {
            headers.push(("Authorization", &authorization));
        }
        let output = self.send(server, authority, more, &request("GET", path, &headers, ""));
        output.stdout.starts_with(b"HTTP/1.1 ").then(|| read(&mut Cursor::new(output.stdout)))
    }
}

#[test]
fn an_address_that_other_machines_can_reach_speaks_tls_and_needs_a_token() {
    let folder = folder();
    let tokens = Tokens::make(folder.path());
    let name = "an_address_that_other_machines_can_reach_speaks_tls_and_needs_a_token";
    let Some(certificates) = Certificates::make(folder.path(), name) else { return };
    let _pipeline = Pipeline::start(folder.path(), "edge");
    let settings = certificates.settings(&tokens, "") + "\nlisten: ['0.0.0.0:0']";
    let server = Server::with(folder.path(), &settings, &[]);
    let status = |path: &str, token: &str| certificates.get(&server, "one", &[], path, token).map(|got| got.status);
    assert_eq!(status("/healthz", ""), Some(200));
    // The page asks for the token.
    assert_eq!(status("/", ""), Some(200));
    for path in ["/readyz", "/metrics", "/api/v1/instances", "/api/v1/openapi.json", "/nothing"] {
        assert_eq!(status(path, ""), Some(401), "{path}");
        assert_eq!(status(path, &tokens.expired), Some(401), "{path}");
        assert_eq!(status(path, &tokens.viewer), Some(if path == "/nothing" { 404 } else { 200 }), "{path}");
    }
    wait_for("the pipeline", || status("/api/v1/instances/edge/config", &tokens.viewer) == Some(200));
    assert_eq!(status("/api/v1/audit", &tokens.viewer), Some(403));
    // A client that does not know the server's authority sends no token.
    assert_eq!(certificates.get(&server, "two", &[], "/healthz", "").map(|got| got.status), None);
    // Protocols before TLS 1.2 are refused for their version (RFC 5246 section 7.2.2: alert 70).
    assert_eq!(hello(&server, 2)[..], [ALERT, 3, 3, 0, 2, 2, 70]);
    assert_eq!(hello(&server, 3)[0], HANDSHAKE);
}

/// The types of records (RFC 5246 section 6.2.1).
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;

/// Sends the hello of a client that speaks versions up to TLS 1.`minor - 1`, and returns what the server sends (RFC
/// 5246 section 7.4.1.2).
fn hello(server: &Server, minor: u8) -> Vec<u8> {
    // Groups, formats of points, and algorithms of signatures.
    let extensions = [0, 10, 0, 4, 0, 2, 0, 23, 0, 11, 0, 2, 1, 0, 0, 13, 0, 8, 0, 6, 4, 3, 8, 4, 4, 1];
    let mut hello = vec![3, minor];
    hello.extend([7; 32]);
    // No session; two suites of ciphers, for each type of certificate; no compression.
    hello.extend([0, 0, 4, 0xc0, 0x2b, 0xc0, 0x2f, 1, 0, 0, extensions.len() as u8]);
    hello.extend(extensions);
    let length = hello.len() as u8;
    let mut stream = connect(&server.address);
    stream
        .write_all(&[&[HANDSHAKE, 3, 1, 0, length + 4, 1, 0, 0, length], hello.as_slice()].concat())
        .expect("the server reads");
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received);
    received
}

#[test]
fn plain_http_at_an_address_with_tls_gets_no_response() {
    let folder = folder();
    let tokens = Tokens::make(folder.path());
    let name = "plain_http_at_an_address_with_tls_gets_no_response";
    let Some(certificates) = Certificates::make(folder.path(), name) else { return };
    let server = Server::with(folder.path(), &certificates.settings(&tokens, ""), &[]);
    let mut stream = connect(&server.address);
    stream.write_all(request("GET", "/healthz", &[], "").as_bytes()).expect("the server reads");
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received);
    // An alert of TLS is no response, and has no text.
    assert!(received.len() < 16 && !received.windows(4).any(|part| part == b"HTTP"), "{received:?}");
    assert_eq!(certificates.get(&server, "one", &[], "/healthz", "").map(|got| got.status), Some(200));
}

#[test]
fn with_client_ca_only_clients_with_a_certificate_of_it_get_a_response() {
    let folder = folder();
    let tokens = Tokens::make(folder.path());
    let name = "with_client_ca_only_clients_with_a_certificate_of_it_get_a_response";
    let Some(certificates) = Certificates::make(folder.path(), name) else { return };
    certificates.issue("friend", "one");
    certificates.issue("stranger", "two");
    let more = format!(", client_ca: '{}'", certificates.path("one.pem"));
    let server = Server::with(folder.path(), &certificates.settings(&tokens, &more), &[]);
    let status = |more: &[&str], path: &str| certificates.get(&server, "one", more, path, "").map(|got| got.status);
    let of = |name: &str| [certificates.path(&format!("{name}.pem")), certificates.path(&format!("{name}.key"))];
    let ([friend, friend_key], [stranger, stranger_key]) = (of("friend"), of("stranger"));
    for version in ["-tls1_2", "-tls1_3"] {
        assert_eq!(status(&[version], "/healthz"), None, "{version}");
        assert_eq!(status(&[version, "-cert", &stranger, "-key", &stranger_key], "/healthz"), None, "{version}");
        assert_eq!(status(&[version, "-cert", &friend, "-key", &friend_key], "/healthz"), Some(200), "{version}");
    }
    // A certificate is no token.
    assert_eq!(status(&["-cert", &friend, "-key", &friend_key], "/api/v1/audit"), Some(401));
}

#[test]
fn certificates_are_replaced_on_sighup_and_stay_if_the_new_ones_have_faults() {
    let folder = folder();
    let tokens = Tokens::make(folder.path());
    let name = "certificates_are_replaced_on_sighup_and_stay_if_the_new_ones_have_faults";
    let Some(certificates) = Certificates::make(folder.path(), name) else { return };
    let server = Server::with(folder.path(), &certificates.settings(&tokens, ""), &[]);
    let trusts = |authority: &str| certificates.get(&server, authority, &[], "/healthz", "").is_some();
    assert!(trusts("one") && !trusts("two"));
    certificates.issue("site", "two");
    assert!(trusts("one"), "the files are read at the signal");
    server.signal(Signal::HUP);
    server.line("event=settings_read");
    assert!(trusts("two") && !trusts("one"));
    // The certificate of another key.
    certificates.issue("other", "one");
    std::fs::copy(folder.path().join("other.pem"), folder.path().join("site.pem")).expect("own file");
    server.signal(Signal::HUP);
    let line = server.line("event=settings_refused");
    assert!(line.contains("the certificate and the key"), "{line}");
    assert!(trusts("two") && !trusts("one"));
    assert_eq!(server.end(), Some(0));
}

#[test]
fn faults_of_tls_files_are_reported_at_the_start() {
    let folder = folder();
    let tokens = Tokens::make(folder.path());
    let Some(certificates) = Certificates::make(folder.path(), "faults_of_tls_files_are_reported_at_the_start") else {
        return;
    };
    certificates.issue("other", "one");
    let refused = |settings: &str| {
        let refused = Server::try_with(folder.path(), settings, &[]).err().expect("it must not start");
        assert_eq!(refused.code, Some(2), "{refused:?}");
        // A part of the key's text would be a leak.
        let key = std::fs::read_to_string(folder.path().join("site.key")).expect("own file");
        assert!(!key.lines().any(|line| !line.starts_with('-') && refused.err.contains(line)), "{refused:?}");
        refused.err
    };
    let settings = certificates.settings(&tokens, "");
    for (before, after, expected) in [
        ("site.pem", "missing.pem", "missing.pem: No such file"),
        ("site.pem", "site.key", "site.key: there is no certificate in PEM form"),
        ("site.key", "missing.key", "missing.key: No such file"),
        ("site.key", "one.pem", "one.pem: "),
        ("site.key", "other.key", "site.pem: the certificate and the key: "),
    ] {
        let err = refused(&settings.replace(before, after));
        assert!(err.contains("tls: ") && err.contains(expected), "{after}: {err}");
    }
    let key = folder.path().join("site.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o604)).expect("own file");
    assert!(refused(&settings).contains("mode 0604: every user can read or change the key"));
}
