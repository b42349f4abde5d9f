//! The messages between the root helper and the HTTP process, and the calls that send and receive them.
//!
//! The socket keeps the bounds of messages (`SOCK_SEQPACKET`), so a message is either whole or refused. Each request
//! has exactly one response, in the order of the requests.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv,
    recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

/// The longest message, in bytes.
pub(super) const LONGEST: usize = 64 << 10;

/// A request of the HTTP process. The field `do` has its name.
///
/// The variants without fields have braces: serde ignores unknown fields of a variant without them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum HelperRequest {
    /// Requests a description of the helper.
    Identity {},
    /// Requests the sockets of instances, by path.
    Sockets {
        /// Only sockets after this path are returned. A list that is longer than a message is requested in parts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<PathBuf>,
    },
    /// Requests a connection to the socket of an instance.
    Connect {
        /// The path, as the helper lists it.
        path: PathBuf,
    },
}

impl HelperRequest {
    /// Parses a request.
    ///
    /// # Errors
    /// Returns what is wrong and what is allowed.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        // Serde would accept an array with the name as its first element, too.
        if bytes.first() != Some(&b'{') {
            return Err("a request is a JSON object, such as {\"do\":\"identity\"}".to_owned());
        }
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }
}

/// A response of the helper: `{"ok":…}` or `{"error":"…"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HelperResponse<T> {
    /// The result.
    Ok(T),
    /// The reason why there is no result.
    Error(String),
}

/// The description of a root helper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelperIdentity {
    /// Its user number: 0.
    pub uid: u32,
    /// Its process ID.
    pub pid: u32,
    /// The names of the operations that it does.
    pub operations: Vec<String>,
}

/// A part of the list of sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SocketPage {
    /// The sockets, by path.
    pub(super) sockets: Vec<ListedSocket>,
    /// Whether there are further sockets.
    pub(super) more: bool,
}

/// A socket of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ListedSocket {
    /// The name of the instance.
    pub(super) name: String,
    /// Its process ID, if the socket's name contains it.
    pub(super) pid: Option<u32>,
    /// The path.
    pub(super) path: PathBuf,
}

/// The result of `connect`. The descriptor of the connection is beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Connected {}

/// A message that the helper received.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received<'b> {
    /// A message.
    Whole(&'b [u8]),
    /// A message that was longer than [`LONGEST`], with its length. Its content is lost.
    TooLong(usize),
    /// The other process has closed the socket.
    End,
}

/// Returns whether the other end of the socket is closed.
pub(super) fn is_closed(socket: impl AsFd) -> io::Result<bool> {
    wait_for_close(socket.as_fd(), Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
}

/// Waits until the other end of the socket is closed; up to `limit`, or for ever. Returns whether it is closed.
pub(super) fn wait_for_close(socket: BorrowedFd<'_>, limit: Option<&Timespec>) -> io::Result<bool> {
    // Without wanted events, the call reports only the end (`POLLHUP`) and errors, and no messages.
    let mut sockets = [PollFd::from_borrowed_fd(socket, PollFlags::empty())];
    retry_on_intr(|| poll(&mut sockets, limit))?;
    Ok(sockets[0].revents().intersects(PollFlags::HUP | PollFlags::ERR))
}

/// Receives a message into `buffer`, which has [`LONGEST`] bytes. The system closes descriptors that the sender passes
/// beside it, because the call has no room for them.
pub(super) fn receive<'b>(socket: BorrowedFd<'_>, buffer: &'b mut [u8]) -> io::Result<Received<'b>> {
    match retry_on_intr(|| recv(socket, &mut *buffer, RecvFlags::TRUNC)) {
        // An empty message is received as 0 bytes, too.
        Ok((_, 0)) if is_closed(socket)? => Ok(Received::End),
        Ok((_, length)) if length > buffer.len() => Ok(Received::TooLong(length)),
        Ok((_, length)) => Ok(Received::Whole(&buffer[..length])),
        // The other process ended before it received all responses.
        Err(Errno::CONNRESET) => Ok(Received::End),
        Err(error) => Err(error.into()),
    }
}

/// Receives a message, and the descriptor that the sender passed beside it. Returns the length of the message, which is
/// 0 if the other end is closed.
pub(super) fn receive_with_descriptor(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        retry_on_intr(|| recvmsg(socket, &mut [IoSliceMut::new(&mut *buffer)], &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok((received.bytes, descriptor))
}

/// Sends a message, with a descriptor beside it if there is one.
pub(super) fn send(socket: BorrowedFd<'_>, message: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if descriptor.is_some() && !control.push(SendAncillaryMessage::ScmRights(descriptor.as_slice())) {
        return Err(io::Error::other("there is no room for a descriptor beside the message"));
    }
    // Without this flag, a message to a process that has ended would end this process with SIGPIPE.
    retry_on_intr(|| sendmsg(socket, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a pair of sockets")
    }

    #[test]
    fn requests_are_parsed_strictly() {
        assert_eq!(HelperRequest::parse(br#"{"do":"identity"}"#), Ok(HelperRequest::Identity {}));
        assert_eq!(HelperRequest::parse(br#"{"do":"sockets"}"#), Ok(HelperRequest::Sockets { after: None }));
        let path = Path::new("/a").to_owned();
        assert_eq!(HelperRequest::parse(br#"{"path":"/a","do":"connect"}"#), Ok(HelperRequest::Connect { path }));
        for wrong in [
            "",
            "x",
            "null",
            "7",
            "[]",
            r#"["identity"]"#,
            r#"["connect","/a"]"#,
            r#""identity""#,
            "{}",
            r#"{"do":"shell"}"#,
            r#"{"do":"Identity"}"#,
            r#"{"do":null}"#,
            r#"{"do":["identity"]}"#,
            r#"{"do":"identity","uid":0}"#,
            r#"{"do":"identity","do":"sockets"}"#,
            r#"{"do":"sockets","path":"/a"}"#,
            r#"{"do":"sockets","after":7}"#,
            r#"{"do":"connect"}"#,
            r#"{"do":"connect","path":7}"#,
            r#"{"do":"connect","path":null}"#,
            r#"{"do":"connect","path":["/a"]}"#,
            r#"{"do":"connect","path":"/a","path":"/b"}"#,
            r#"{"do":"connect","path":"/a","mode":1}"#,
            r#"{"do":"identity"} {"do":"identity"}"#,
            "{\"do\":\"identity\"}\0",
        ] {
            assert!(HelperRequest::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(HelperRequest::parse(b"{\"do\":\"identity\xff\"}").is_err(), "not UTF-8");
        assert!(HelperRequest::parse(&[b'{'; LONGEST]).is_err(), "nested too deep");
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            text in "[{}\":,a-z]{0,60}",
        ) {
            for bytes in [bytes.as_slice(), text.as_bytes(), format!("{{{text}}}").as_bytes()] {
                if let Ok(request) = HelperRequest::parse(bytes) {
                    let again = serde_json::to_vec(&request).expect("its paths are UTF-8");
                    prop_assert_eq!(HelperRequest::parse(&again), Ok(request));
                }
            }
        }
    }

    #[test]
    fn messages_are_received_whole_or_refused() {
        let (ours, theirs) = pair();
        let mut buffer = vec![0; LONGEST];
        let messages = [vec![], vec![7_u8], vec![7; LONGEST], vec![7; LONGEST + 1], vec![8]];
        for message in &messages {
            send(theirs.as_fd(), message, None).expect("there is room");
            let expected = match message.len() {
                length if length > LONGEST => Received::TooLong(length),
                _ => Received::Whole(message),
            };
            assert_eq!(receive(ours.as_fd(), &mut buffer).expect("a message"), expected);
        }
        assert!(!is_closed(&ours).expect("a socket"));
        drop(theirs);
        assert!(is_closed(&ours).expect("a socket"));
        assert_eq!(receive(ours.as_fd(), &mut buffer).expect("the end"), Received::End);
        assert_eq!(receive_with_descriptor(ours.as_fd(), &mut buffer).expect("the end").0, 0);
        assert_eq!(send(ours.as_fd(), b"x", None).expect_err("closed").kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_process_that_ended_with_unread_responses_is_an_end() {
        let (ours, theirs) = pair();
        send(ours.as_fd(), b"response", None).expect("there is room");
        drop(theirs);
        assert_eq!(receive(ours.as_fd(), &mut [0; 9]).expect("the end"), Received::End);
    }

    #[test]
    fn descriptors_pass_only_where_they_are_expected() {
        let (ours, theirs) = pair();
        let (passed, kept) = pair();
        let mut buffer = vec![0; LONGEST];
        send(ours.as_fd(), b"with", Some(passed.as_fd())).expect("there is room");
        send(ours.as_fd(), b"without", None).expect("there is room");
        let (length, descriptor) = receive_with_descriptor(theirs.as_fd(), &mut buffer).expect("a message");
        assert_eq!(&buffer[..length], b"with");
        send(descriptor.expect("a descriptor").as_fd(), b"through", None).expect("there is room");
        assert_eq!(receive(kept.as_fd(), &mut buffer).expect("a message"), Received::Whole(b"through"));
        assert!(receive_with_descriptor(theirs.as_fd(), &mut buffer).expect("a message").1.is_none());
        // The helper takes no descriptors: the system closes this one, and `kept` has no other end.
        send(theirs.as_fd(), b"unwanted", Some(passed.as_fd())).expect("there is room");
        drop(passed);
        assert!(!is_closed(&kept).expect("a socket"), "the message waits");
        assert_eq!(receive(ours.as_fd(), &mut buffer).expect("a message"), Received::Whole(b"unwanted"));
        assert!(is_closed(&kept).expect("a socket"));
    }
}
