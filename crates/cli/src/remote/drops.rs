//! `forebay drops`: prints packets as the running pipeline drops them, or writes them to a file.
//!
//! The file is written by this command and not by the pipeline, with the rights of this command and on its disk. The
//! pipeline's workers copy dropped packets into a queue of a few MiB and never wait. If the queue is full, a packet is
//! counted and not sent.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::anyhow;
use forebay_observe::filter::Filter;
use forebay_observe::story::summary;
use forebay_ports::pcap::{NgWriter, WhenFull};
use forebay_protocol::{ClientError, Request, Response, response::DroppedPacket};
use jiff::Timestamp;
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::{connect, strange};
use crate::format::counted;
use crate::{Answer, args, printed};

/// The time in which the pipeline must respond after the observation should have ended. A suspended process does not
/// respond.
const PATIENCE: Duration = Duration::from_secs(2);

/// The output for packets.
enum Target {
    File(NgWriter),
    Lines,
    Json,
}

/// Shows or writes dropped packets until the count or the time is reached, or a signal arrives. Returns `No` if packets
/// are missing, or if it is unknown whether packets are missing.
pub(crate) fn drops(arguments: &args::Drops) -> anyhow::Result<Answer> {
    if let Some(filter) = &arguments.filter {
        filter.parse::<Filter>().map_err(|error| anyhow!("--filter '{filter}': {error}"))?;
    }
    // Create the file before waiting for packets.
    let write = |path| NgWriter::create(path, WhenFull::Wait).map_err(|error| anyhow!("--write: {error}"));
    let mut target = match &arguments.write {
        Some(path) => Target::File(write(path)?),
        None if arguments.json => Target::Json,
        None => Target::Lines,
    };
    let mut client = connect(&arguments.running)?;
    // The first signal stops the observation properly: the pipeline then reports how many packets it could not send.
    let (stream, connection) = (client.socket()?, client.socket()?);
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let handle = signals.handle();
    let (stop, stopped) = channel();
    let follow = move || {
        if signals.forever().next().is_some() {
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stop.send(());
            // The second signal ends the process.
            if signals.forever().next().is_some() {
                std::process::exit(2);
            }
        }
    };
    let follower = std::thread::Builder::new().name("signals".to_owned()).spawn(follow)?;
    let for_ns = arguments.duration.map(|time| time.0);
    let waits = Arc::new(Waits::default());
    let limiting = Arc::clone(&waits);
    let limit = move || limiting.limit(&connection, for_ns.map(Duration::from_nanos), &stopped);
    let limiter = std::thread::Builder::new().name("limit".to_owned()).spawn(limit)?;
    let request = Request::Drops { count: arguments.count, for_ns, filter: arguments.filter.clone() };
    let mut answer = waits.wait(|| client.stream(&request));
    // The packets are counted here, because a pipeline that is killed does not report their number.
    let mut received = 0;
    let lost = loop {
        match answer {
            Ok(Response::Dropped(packet)) => {
                if let Err(error) = output(&packet, &mut target) {
                    break Err(error);
                }
                received += 1;
            }
            Ok(Response::Watched { lost, .. }) => break Ok(Some(lost)),
            Ok(_) => break Err(strange()),
            // The pipeline has ended, or did not respond in time; the packets so far are kept.
            Err(ClientError::Ended { .. }) => break Ok(None),
            Err(error) => break Err(error.into()),
        }
        answer = waits.wait(|| client.response());
    };
    // The end of the first thread ends the second one.
    handle.close();
    let _ = follower.join();
    let _ = limiter.join();
    if let Target::File(writer) = &mut target {
        writer.finish().map_err(|error| anyhow!("--write: {error}"))?;
    }
    // Unknown if the pipeline ended before it reported the number, or did not respond.
    let lost = lost?;
    match (&arguments.write, arguments.json) {
        (Some(path), false) => {
            let path = path.display();
            writeln!(printed::out(), "{} written to {path}", counted(received, "dropped packet"))?;
        }
        (_, true) => writeln!(printed::out(), "{}", json!({ "sent": received, "lost": lost }))?,
        (None, false) => {}
    }
    let Some(lost) = lost else {
        let why = if waits.is_late.load(Ordering::Relaxed) { "does not respond" } else { "has ended" };
        writeln!(printed::err(), "the pipeline {why}: the number of missing packets is unknown")?;
        return Ok(Answer::No);
    };
    if lost == 0 {
        return Ok(Answer::Yes);
    }
    let more = counted(lost, "more packet");
    writeln!(printed::err(), "{more} missing: packets were dropped faster than they could be sent")?;
    Ok(Answer::No)
}

/// The waits of the command for responses.
#[derive(Default)]
struct Waits {
    /// Increases when a wait begins and when it ends. So it is odd while the command waits.
    changes: AtomicU64,
    /// True if the pipeline did not respond in time, so that the connection was closed.
    is_late: AtomicBool,
}

impl Waits {
    /// Waits for a response.
    fn wait<T>(&self, response: impl FnOnce() -> T) -> T {
        self.changes.fetch_add(1, Ordering::Relaxed);
        let response = response();
        self.changes.fetch_add(1, Ordering::Relaxed);
        response
    }

    /// Closes the connection if the command waits in vain for [`PATIENCE`] after `duration`, or after a signal. While
    /// responses come, the command continues. Returns at the latest when the sender of `signals` is dropped.
    fn limit(&self, connection: &UnixStream, duration: Option<Duration>, signals: &Receiver<()>) {
        let over = match duration {
            Some(duration) => signals.recv_timeout(duration),
            None => signals.recv().map_err(RecvTimeoutError::from),
        };
        if over == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        loop {
            let before = self.changes.load(Ordering::Relaxed);
            let next = signals.recv_timeout(PATIENCE);
            if next == Err(RecvTimeoutError::Disconnected) {
                return;
            }
            let waits = !before.is_multiple_of(2) && self.changes.load(Ordering::Relaxed) == before;
            if next == Err(RecvTimeoutError::Timeout) && waits {
                self.is_late.store(true, Ordering::Relaxed);
                let _ = connection.shutdown(Shutdown::Both);
                return;
            }
        }
    }
}

/// Writes one packet.
fn output(packet: &DroppedPacket, target: &mut Target) -> anyhow::Result<()> {
    let frame = bytes(&packet.frame).ok_or_else(strange)?;
    match target {
        Target::File(writer) => {
            writer.write(packet.at_ns, packet.length, &frame, &packet.reason);
            if writer.failed() {
                writer.finish().map_err(|error| anyhow!("--write: {error}"))?;
            }
        }
        Target::Json => writeln!(printed::stream(), "{}", serde_json::to_string(packet)?)?,
        Target::Lines => {
            let at = Timestamp::from_nanosecond(packet.at_ns.into()).unwrap_or_default();
            let DroppedPacket { reason, .. } = packet;
            writeln!(printed::stream(), "{}  {reason}  {}", at.strftime("%H:%M:%S%.6f"), summary(&frame))?;
        }
    }
    Ok(())
}

/// Decodes hexadecimal digits. Returns `None` if the text has other characters or an odd length.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(byte).collect())?
}
