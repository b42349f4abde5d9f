//! Imitates a running pipeline: a thread that responds to the protocol, without packets.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use forebay_protocol::response::Hello;
use forebay_protocol::{Request, Response, VERSION};

/// Listens at `socket` as a pipeline that sends no counters. Returns the connections that follow events.
///
/// It refuses an action of the module `refused`, and sends a wrong response to one of the module `wrong`. At others, it
/// closes the connection.
pub fn serve_as_pipeline(socket: &Path) -> Receiver<UnixStream> {
    let listener = UnixListener::bind(socket).expect("a writable folder");
    // The server may be another user.
    std::fs::set_permissions(socket, Permissions::from_mode(0o777)).expect("own file");
    let (send, followers) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let send = send.clone();
            std::thread::spawn(move || respond(stream, &send));
        }
    });
    followers
}

/// Responds to the requests of one connection.
fn respond(mut stream: UnixStream, followers: &Sender<UnixStream>) {
    let lines = BufReader::new(stream.try_clone().expect("a file descriptor")).lines();
    for line in lines.map_while(Result::ok) {
        let request: Request = serde_json::from_str(&line).expect("a request");
        let response = match request {
            Request::Hello { .. } => Response::Hello(Hello {
                protocol: VERSION,
                forebay: "0".to_owned(),
                pipeline: "source".to_owned(),
                instance: None,
                pid: std::process::id(),
                started: "2026-01-01T00:00:00Z".to_owned(),
                workers: 1,
                capabilities: Vec::new(),
            }),
            Request::Events { .. } => Response::Events(Vec::new()),
            // The stream of counters begins, and never has any.
            Request::Watch { .. } => Response::Done,
            Request::Act { module, .. } => match module.as_str() {
                "refused" => Response::Error("the value is too large".to_owned()),
                "wrong" => Response::Traced,
                _ => return,
            },
            Request::Config { .. } => Response::Error("it has none".to_owned()),
            _ => continue,
        };
        write_line(&mut stream, &response);
        if response == Response::Events(Vec::new()) {
            // The test may have ended.
            let _ = followers.send(stream.try_clone().expect("a file descriptor"));
        }
    }
}

pub fn write_line(stream: &mut UnixStream, response: &Response) {
    let line = serde_json::to_string(response).expect("plain data") + "\n";
    // The server may have gone away.
    let _ = stream.write_all(line.as_bytes());
}
