//! `forebay drops`: prints packets as the running pipeline drops them, or writes them to a file.
//!
//! The file is written by this command and not by the pipeline, with the rights of this command and on its disk. The
//! pipeline's workers copy dropped packets into a queue of a few MiB and never wait. If the queue is full, a packet is
//! counted and not sent.

use std::io::Write;
use std::net::Shutdown;

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
use crate::format::{counted, whole};
use crate::{Answer, args, printed};

/// The output for packets.
enum Target {
    File(NgWriter),
    Lines,
    Json,
}

/// Shows or writes dropped packets until the count or the time is reached, or a signal arrives. Returns `No` if packets
/// are missing.
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
    let stream = client.socket()?;
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let handle = signals.handle();
    let follow = move || {
        if signals.forever().next().is_some() {
            let _ = stream.shutdown(Shutdown::Write);
            // The second signal ends the process.
            if signals.forever().next().is_some() {
                std::process::exit(2);
            }
        }
    };
    let follower = std::thread::Builder::new().name("signals".to_owned()).spawn(follow)?;
    let (count, duration) = (arguments.count, arguments.duration);
    let request = Request::Drops { count, for_ns: duration.map(|time| time.0), filter: arguments.filter.clone() };
    let mut answer = client.stream(&request);
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
            // The pipeline has ended; the packets so far are kept.
            Err(ClientError::Ended) => break Ok(None),
            Err(error) => break Err(error.into()),
        }
        answer = client.response();
    };
    handle.close();
    let _ = follower.join();
    if let Target::File(writer) = &mut target {
        writer.finish().map_err(|error| anyhow!("--write: {error}"))?;
    }
    // Unknown if the pipeline ended before it reported the number.
    let lost = lost?;
    let ended = if lost.is_none() { ": the pipeline has ended" } else { "" };
    match (&arguments.write, arguments.json) {
        (Some(path), false) => {
            let path = path.display();
            writeln!(printed::out(), "{} written to {path}{ended}", counted(received, "dropped packet"))?;
        }
        (_, true) => writeln!(printed::out(), "{}", json!({ "sent": received, "lost": lost }))?,
        (None, false) if lost.is_none() => writeln!(printed::err(), "the pipeline has ended")?,
        (None, false) => {}
    }
    let Some(lost) = lost.filter(|lost| *lost > 0) else { return Ok(Answer::Yes) };
    let more = whole(lost);
    writeln!(printed::err(), "{more} more packets are missing: they were dropped faster than they could be sent")?;
    Ok(Answer::No)
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
