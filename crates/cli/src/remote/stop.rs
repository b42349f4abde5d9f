//! `forebay stop`: ends a running pipeline as SIGTERM does, and waits until it has ended.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::bail;
use forebay_protocol::{
    ClientError, Request, Response,
    response::{Ended, Hello},
};
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
    let hello = match client.hello() {
        Ok(hello) => hello.clone(),
        Err(ClientError::Silent) => {
            return report(arguments, None, Outcome::Late(patience));
        }
        Err(error) => return Err(error.into()),
    };
    // Not the number in the answer: its sender could have any process waited for, or advised to be killed.
    let number = client.process();
    if let Some(number) = number.filter(|number| !is_called(*number, hello.pid)) {
        bail!(
            "process {number} listens at the socket, and its answer is of process {}: something stands between \
             (`socat`, `ssh`), or pretends to be a run. Nothing was ended",
            hello.pid
        );
    }
    let pid = number.and_then(|number| i32::try_from(number).ok()).and_then(Pid::from_raw);
    // Before it ends: later another process may have the number.
    let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let run = Some((&hello, number));
    // What is left of the time, and at least some.
    let mut client = client.with_patience(left(until, Duration::from_millis(1)))?;
    let ended = match client.request(&Request::Stop { wait: true }) {
        Ok(Response::Ended(ended)) => Some(*ended),
        Ok(_) => return Err(strange()),
        Err(ClientError::Silent) => return report(arguments, run, Outcome::Late(patience)),
        // It was killed, or somebody else ended it twice.
        Err(ClientError::Ended | ClientError::Broken(_)) => None,
        Err(error) => return Err(error.into()),
    };
    if let Some(process) = process {
        let left = left(until, Duration::from_secs(1));
        let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        // Readable once the process has ended.
        let gone = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)).is_ok_and(|ready| ready > 0);
        if !gone {
            return report(arguments, run, Outcome::Late(patience));
        }
    }
    report(arguments, run, ended.map_or(Outcome::Unknown, |ended| Outcome::Ended(Box::new(ended))))
}

/// The time until then, but so much at least.
fn left(until: Instant, least: Duration) -> Duration {
    until.saturating_duration_since(Instant::now()).max(least)
}

/// Whether the process with this number calls itself `said`: in a PID namespace of its own it has another number there.
fn is_called(number: u32, said: u32) -> bool {
    let own = || {
        let status = std::fs::read_to_string(format!("/proc/{number}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace().last()?.parse::<u32>().ok()
    };
    number == said || own() == Some(said)
}

/// The outcome of a request to stop.
enum Outcome {
    Ended(Box<Ended>),
    /// It has ended and did not say how.
    Unknown,
    /// It had not ended after this time.
    Late(Duration),
}

/// Prints the outcome; `run`: what the run said of itself, and the number of its process, where it has one here.
fn report(arguments: &args::Stop, run: Option<(&Hello, Option<u32>)>, outcome: Outcome) -> anyhow::Result<Answer> {
    let (hello, pid) = (run.map(|(hello, _)| hello), run.and_then(|(_, pid)| pid));
    let name = hello.map_or("the pipeline", |hello| hello.instance.as_deref().unwrap_or(&hello.pipeline));
    let process = pid.map_or_else(String::new, |pid| format!(" (process {pid})"));
    let answer = if matches!(outcome, Outcome::Late(_)) { Answer::No } else { Answer::Yes };
    if arguments.json {
        let ended = match &outcome {
            Outcome::Ended(ended) => serde_json::to_value(ended)?,
            _ => serde_json::Value::Null,
        };
        let has_ended = answer == Answer::Yes;
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
            let kill = pid.map_or_else(String::new, |pid| format!("; `kill -9 {pid}` ends it at once"));
            writeln!(
                printed::err(),
                "{name}{process} has not ended in {seconds} s: it goes on ending. Wait longer with --timeout{kill}"
            )?;
        }
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_called_by_its_own_number_and_by_no_other() {
        let own = std::process::id();
        assert!(is_called(own, own));
        // No process has such a number: there are 2^22 at the most.
        assert!(!is_called(own, u32::MAX) && !is_called(u32::MAX, own));
    }

    #[test]
    fn what_is_left_of_the_time_is_never_nothing() {
        let (now, least) = (Instant::now(), Duration::from_millis(1));
        assert_eq!(left(now, least), least);
        let hour = Duration::from_secs(3_600);
        assert!((least..=hour).contains(&left(now + hour, least)));
    }
}
