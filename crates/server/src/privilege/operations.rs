//! The operations that the root helper does for the HTTP process: a closed list.
//!
//! The HTTP process is not trusted: an attacker may have taken it over. Nor are the folders of users: their owners can
//! replace files while the helper checks them. So the helper opens a socket without following links, checks the file
//! that it has opened, and connects to that file.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use forebay_protocol::locate::{default_folders, sockets_in};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::Serialize;

use super::message::{Connected, HelperIdentity, HelperRequest, HelperResponse, LONGEST, ListedSocket, SocketPage};

/// The names of all operations.
pub const OPERATIONS: [&str; 3] = ["identity", "sockets", "connect"];
/// The time for which the helper waits for an instance whose queue of connections is full.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);
/// The number of bytes of a response without its sockets, rounded up.
const FRAME: usize = 64;
/// The largest number of characters of an error.
const MOST_SHOWN: usize = 200;

/// The operations of a root helper.
pub struct Operations<'a> {
    /// The folders with sockets, in addition to the folders of users.
    folders: Vec<PathBuf>,
    /// Writes a line to the log.
    log: &'a dyn Fn(&str),
}

/// The reason why a request has no result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The request is not allowed.
    Refused(String),
    /// The request is allowed, and the operation failed.
    Failed(String),
}

/// A response that is ready to be sent.
pub(super) struct Prepared {
    /// The text of the response.
    pub(super) message: Vec<u8>,
    /// The connection that is passed beside it.
    pub(super) connection: Option<UnixStream>,
    /// The reason, if the request was refused.
    pub(super) refusal: Option<String>,
}

impl<'a> Operations<'a> {
    /// Creates the operations. The sockets of instances are in the folders of users and in `folders`. An element of
    /// `folders` may be a link, which is followed now and not later. `log` writes a line to the log: a refused request,
    /// or a failure of the helper.
    pub fn new(folders: &[PathBuf], log: &'a dyn Fn(&str)) -> Self {
        let real = |folder: &PathBuf| folder.canonicalize().unwrap_or_else(|_| folder.clone());
        Self { folders: folders.iter().map(real).collect(), log }
    }

    /// Writes a line to the log.
    pub(super) fn log(&self, line: &str) {
        (self.log)(line);
    }

    /// Parses a request, does its operation, and returns the response. Changes nothing on the host.
    pub(super) fn respond(&self, request: &[u8]) -> Prepared {
        let done = HelperRequest::parse(request).map_err(Failure::Refused).and_then(|request| match request {
            HelperRequest::Identity {} => encode(identity()).map(|message| (message, None)),
            HelperRequest::Sockets { after } => encode(self.page(after.as_deref())).map(|message| (message, None)),
            HelperRequest::Connect { path } => {
                let connection = self.connect(&path)?;
                encode(Connected {}).map(|message| (message, Some(connection)))
            }
        });
        match done {
            Ok((message, connection)) => Prepared { message, connection, refusal: None },
            Err(Failure::Refused(why)) => refuse(&why),
            Err(Failure::Failed(why)) => Prepared { message: error(&shortened(&why)), connection: None, refusal: None },
        }
    }

    /// Lists the sockets in all folders with the folder of each, by path. Files that are not sockets are skipped, and
    /// so are paths that JSON cannot represent.
    fn listed(&self) -> Vec<(PathBuf, ListedSocket)> {
        let mut all = Vec::new();
        for folder in default_folders().iter().chain(&self.folders) {
            if !folder.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
                continue;
            }
            for found in sockets_in(std::slice::from_ref(folder)) {
                let is_socket = found.path.symlink_metadata().is_ok_and(|metadata| metadata.file_type().is_socket());
                if is_socket && found.path.to_str().is_some() {
                    let socket = ListedSocket { name: found.name, pid: found.pid, path: found.path };
                    all.push((folder.clone(), socket));
                }
            }
        }
        all.sort_by(|(_, one), (_, other)| one.path.cmp(&other.path));
        all.dedup_by(|(_, one), (_, other)| one.path == other.path);
        all
    }

    /// Returns the sockets after `after` that fit into a message.
    fn page(&self, after: Option<&Path>) -> SocketPage {
        let all = self.listed().into_iter().map(|(_, socket)| socket);
        page_of(all.filter(|socket| after.is_none_or(|after| socket.path.as_path() > after)))
    }

    /// Connects to a listed socket.
    fn connect(&self, path: &Path) -> Result<UnixStream, Failure> {
        // Texts are compared, because paths that differ in `//` and `/./` are equal.
        let listed = self.listed().into_iter().find(|(_, socket)| socket.path.as_os_str() == path.as_os_str());
        let Some((folder, _)) = listed else {
            let why = format!("{} is not the socket of an instance: allowed are those of 'sockets'", path.display());
            return Err(Failure::Refused(why));
        };
        let socket = open_socket(&folder, path)
            .map_err(|error| Failure::Refused(format!("{} cannot be opened as a socket: {error}", path.display())))?;
        connect_to(&socket)
            .map_err(|error| Failure::Failed(format!("cannot connect to the instance at {}: {error}", path.display())))
    }
}

/// Describes this helper.
fn identity() -> HelperIdentity {
    HelperIdentity {
        uid: rustix::process::getuid().as_raw(),
        pid: std::process::id(),
        operations: OPERATIONS.map(str::to_owned).to_vec(),
    }
}

/// Returns the response to a request that is not allowed.
pub(super) fn refuse(why: &str) -> Prepared {
    let why = shortened(why);
    Prepared { message: error(&why), connection: None, refusal: Some(why) }
}

/// Takes the sockets that fit into a message, and at least one.
fn page_of(sockets: impl Iterator<Item = ListedSocket>) -> SocketPage {
    let mut page = SocketPage { sockets: Vec::new(), more: false };
    let mut length = FRAME;
    for socket in sockets {
        // Encoding cannot fail: the path is UTF-8. One byte more is for the comma.
        length += serde_json::to_vec(&socket).map_or(LONGEST, |text| text.len() + 1);
        if length > LONGEST && !page.sockets.is_empty() {
            page.more = true;
            break;
        }
        page.sockets.push(socket);
    }
    page
}

/// Encodes a result.
fn encode<T: Serialize>(result: T) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(&HelperResponse::Ok(result)).map_err(|error| Failure::Failed(error.to_string()))
}

/// Encodes an error.
fn error(why: &str) -> Vec<u8> {
    serde_json::to_vec(&HelperResponse::<()>::Error(why.to_owned())).expect("every text is a JSON string")
}

/// Returns the beginning of an error, without control characters. The text may come from the HTTP process, and must not
/// look like another line of the log.
fn shortened(why: &str) -> String {
    let plain = |letter: char| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter };
    why.chars().take(MOST_SHOWN).map(plain).collect()
}

/// Opens the socket at `path` in `folder` or in a folder of it, without following links in or at `folder`. The
/// descriptor only stands for the file (`O_PATH`).
fn open_socket(folder: &Path, path: &Path) -> io::Result<OwnedFd> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let rest = path.strip_prefix(folder).map_err(|_| invalid())?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = openat(CWD, folder, flags | OFlags::DIRECTORY, Mode::empty())?;
    let mut components = rest.components().peekable();
    while let Some(component) = components.next() {
        let Component::Normal(name) = component else {
            return Err(invalid());
        };
        let required = if components.peek().is_some() { OFlags::DIRECTORY } else { OFlags::empty() };
        file = openat(&file, name, flags | required, Mode::empty())?;
    }
    match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::Socket => Ok(file),
        _ => Err(invalid()),
    }
}

/// Connects to an open socket file. If the queue of connections is full, the call waits up to [`CONNECT_LIMIT`].
fn connect_to(socket: &OwnedFd) -> io::Result<UnixStream> {
    // The path of the descriptor leads to the file that was checked, also if its name now leads elsewhere.
    let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", socket.as_raw_fd()))?;
    let connection = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&connection, Timeout::Send, Some(CONNECT_LIMIT))?;
    retry_on_intr(|| connect(&connection, &address))?;
    set_socket_timeout(&connection, Timeout::Send, None)?;
    Ok(UnixStream::from(connection))
}

#[cfg(test)]
mod tests;
