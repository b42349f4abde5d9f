//! `forebay stop`: ends a running pipeline as SIGTERM does, and waits until it has ended.

use std::io::Write;
use std::time::{Duration, Instant};

use forebay_instance::socket::{self, ClientError, Ended, Hello, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::json;

use super::{connect, strange};
use crate::format::{counted, whole};
use crate::{Answer, args, printed};

/// Ends a running pipeline.
pub(crate) fn stop(arguments: &args::Stop) -> anyhow::Result<Answer> {
    let patience = Duration::from_nanos(arguments.timeout.0);
    let until = Instant::now() + patience;
    // A stopped process answers nothing, and that is an answer here.
    let mut client = connect(&arguments.running)?.with_patience(patience.max(Duration::from_millis(1)))?;
    let hello = match client.ask(&Request::Hello {}) {
        Ok(socket::Answer::Hello(hello)) => hello,
        Ok(_) => return Err(strange()),
        Err(ClientError::Silent) => {
            return told(arguments, None, Outcome::Late(patience));
        }
        Err(error) => return Err(error.into()),
    };
    let pid = i32::try_from(hello.pid).ok().and_then(Pid::from_raw);
    // Before it ends: later another process may have the number.
    let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let ended = match client.ask(&Request::Stop { wait: true }) {
        Ok(socket::Answer::Ended(ended)) => Some(*ended),
        Ok(_) => return Err(strange()),
        Err(ClientError::Silent) => return told(arguments, Some(&hello), Outcome::Late(patience)),
        // It was killed, or somebody else ended it twice.
        Err(ClientError::Ended | ClientError::Broken(_)) => None,
        Err(error) => return Err(error.into()),
    };
    if let Some(process) = process {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_secs(1));
        let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        // Readable once the process has ended.
        let gone = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)).is_ok_and(|ready| ready > 0);
        if !gone {
            return told(arguments, Some(&hello), Outcome::Late(patience));
        }
    }
    told(arguments, Some(&hello), ended.map_or(Outcome::Unknown, |ended| Outcome::Ended(Box::new(ended))))
}

/// The outcome of a request to stop.
enum Outcome {
    Ended(Box<Ended>),
    /// It has ended and did not say how.
    Unknown,
    /// It had not ended after this time.
    Late(Duration),
}

fn told(arguments: &args::Stop, hello: Option<&Hello>, outcome: Outcome) -> anyhow::Result<Answer> {
    let name = hello.map_or("the pipeline", |hello| hello.instance.as_deref().unwrap_or(&hello.pipeline));
    let process = hello.map_or_else(String::new, |hello| format!(" (process {})", hello.pid));
    let answer = if matches!(outcome, Outcome::Late(_)) { Answer::No } else { Answer::Yes };
    if arguments.json {
        let ended = match &outcome {
            Outcome::Ended(ended) => serde_json::to_value(ended)?,
            _ => serde_json::Value::Null,
        };
        let (pid, has_ended) = (hello.map(|hello| hello.pid), answer == Answer::Yes);
        writeln!(printed::out(), "{}", json!({ "name": name, "pid": pid, "has_ended": has_ended, "ended": ended }))?;
        return Ok(answer);
    }
    match outcome {
        Outcome::Ended(ended) => {
            let Ended { exit, duration_s, packets, troubles } = *ended;
            let mut out = printed::out();
            writeln!(out, "{name}{process} has ended after {}, exit code {exit}", super::uptime(duration_s))?;
            let dropped = packets.all_dropped();
            writeln!(out, "in {}, out {}, dropped {}", whole(packets.entered), whole(packets.out), whole(dropped))?;
            if let Some(wound_up) = packets.dropped.get("wound_up") {
                writeln!(out, "{} that modules still held are among them (wound_up)", counted(*wound_up, "packet"))?;
            }
            troubles.iter().try_for_each(|trouble| writeln!(out, "{trouble}"))?;
        }
        Outcome::Unknown => {
            writeln!(printed::out(), "{name}{process} has ended, and did not say how")?;
        }
        Outcome::Late(patience) => {
            let seconds = patience.as_secs_f64();
            let kill = hello.map_or_else(String::new, |hello| format!("; `kill -9 {}` ends it at once", hello.pid));
            writeln!(
                printed::err(),
                "{name}{process} has not ended in {seconds} s: it goes on ending. Wait longer with --timeout{kill}"
            )?;
        }
    }
    Ok(answer)
}
