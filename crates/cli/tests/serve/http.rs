//! A client that sends exactly the bytes that a test wants.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// The time after which a response counts as missing.
const PATIENCE: Duration = Duration::from_secs(60);

/// A response.
#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    /// The headers with names in lower case, in their order.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Response {
    /// Returns the first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// Checks that the response is a problem with this status, and returns its detail.
    pub fn problem(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.body);
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.body);
        let problem = self.json();
        assert_eq!(problem["status"], status);
        assert!(problem["title"].is_string() && problem["type"].as_str().is_some_and(|it| it.starts_with("urn:")));
        problem["detail"].as_str().expect("a detail").to_owned()
    }
}

/// A connection of either type.
pub trait Stream: Read + Write + Send {
    /// Ends the sending side.
    fn end(&self);
}

impl Stream for TcpStream {
    fn end(&self) {
        let _ = self.shutdown(std::net::Shutdown::Write);
    }
}

impl Stream for UnixStream {
    fn end(&self) {
        let _ = self.shutdown(std::net::Shutdown::Write);
    }
}

/// Connects to an address.
pub fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    stream.set_write_timeout(Some(PATIENCE)).expect("a time limit");
    stream
}

/// Connects to a Unix socket.
pub fn connect_unix(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    stream
}

/// Returns the bytes of a request.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        text += "Host: localhost\r\n";
    }
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() {
        text += &format!("Content-Length: {}\r\n", body.len());
    }
    text + "\r\n" + body
}

/// Sends bytes, and returns the response.
pub fn exchange(stream: &mut dyn Stream, bytes: &[u8]) -> Response {
    // The server may refuse the request before it has read all of it.
    let _ = stream.write_all(bytes);
    read(&mut BufReader::new(stream))
}

/// Reads a response with its body.
pub fn read(stream: &mut impl BufRead) -> Response {
    let (status, headers) = read_head(stream);
    let of = |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    let body = match (of("content-length"), of("transfer-encoding")) {
        (Some(length), _) => {
            let mut body = vec![0; length.parse().expect("a length")];
            stream.read_exact(&mut body).expect("a whole body");
            body
        }
        (None, Some(coding)) => {
            assert_eq!(coding, "chunked");
            read_chunks(stream)
        }
        (None, None) => Vec::new(),
    };
    Response { status, headers, body: String::from_utf8_lossy(&body).into_owned() }
}

/// Reads the first line and the headers of a response.
pub fn read_head(stream: &mut impl BufRead) -> (u16, Vec<(String, String)>) {
    let mut line = String::new();
    stream.read_line(&mut line).expect("a response");
    let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("no response: '{line}'")).parse().expect("a status");
    let mut headers = Vec::new();
    loop {
        line.clear();
        stream.read_line(&mut line).expect("headers");
        let Some((name, value)) = line.trim_end().split_once(':') else { return (status, headers) };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

/// Reads a body in chunks (RFC 9112 section 7.1).
fn read_chunks(stream: &mut impl BufRead) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let chunk = read_chunk(stream);
        if chunk.is_empty() {
            return body;
        }
        body.extend(chunk);
    }
}

/// Reads one chunk; empty at the end.
pub fn read_chunk(stream: &mut impl BufRead) -> Vec<u8> {
    let mut line = String::new();
    stream.read_line(&mut line).expect("a chunk");
    let mut chunk = vec![0; usize::from_str_radix(line.trim(), 16).expect("a length") + 2];
    stream.read_exact(&mut chunk).expect("a whole chunk");
    chunk.truncate(chunk.len() - 2);
    chunk
}
