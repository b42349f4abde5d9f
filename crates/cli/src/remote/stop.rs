//! `forebay stop`: stops a running pipeline like SIGTERM, and waits until it has ended.

use std::io::Write;
use std::os::fd::OwnedFd;
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

/// Stops a running pipeline, and waits until its process has ended. Returns `No` if it has not ended in time.
pub(crate) fn stop(arguments: &args::Stop) -> anyhow::Result<Answer> {
    let patience = Duration::from_nanos(arguments.timeout.0);
    let until = Instant::now() + patience;
    // A suspended process does not respond; the command then reports that it has not ended.
    let mut client = connect(&arguments.running)?.with_patience(patience.max(Duration::from_millis(1)))?;
    // Use the process number of the connection, not the number in the response. A false number in the response could be
    // the number of any process. This command would wait for that process, or propose to kill it.
    let number = client.process();
    let pid = number.and_then(|number| i32::try_from(number).ok()).and_then(Pid::from_raw);
    // Open the descriptor before the process ends: afterwards another process may have the number.
    let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let hello = match client.hello() {
        Ok(hello) => hello.clone(),
        Err(ClientError::Silent) => {
            return report(arguments, None, Outcome::Late(patience));
        }
        // The process was killed before it responded. A process in another PID namespace has no number here, and may
        // still run.
        Err(ClientError::Ended { .. } | ClientError::Broken(_))
            if number.is_some() && has_ended(process.as_ref(), AFTER_CONNECTION) =>
        {
            return report(arguments, None, Outcome::Unknown);
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(number) = number.filter(|number| !is_called(*number, hello.pid)) {
        bail!(
            "process {number} listens at the socket, but the response is from process {}: a relay \
             (`socat`, `ssh`) is between them, or a program imitates a run. Nothing was stopped",
            hello.pid
        );
    }
    let run = Some((&hello, number));
    // Wait for the remaining time, but at least 1 ms.
    let mut client = client.with_patience(remaining(until, Duration::from_millis(1)))?;
    let ended = match client.request(&Request::Stop { wait: true }) {
        Ok(Response::Ended(ended)) => Some(*ended),
        Ok(_) => return Err(strange()),
        Err(ClientError::Silent) => return report(arguments, run, Outcome::Late(patience)),
        // The process was killed, or another signal ended it at once.
        Err(ClientError::Ended { .. } | ClientError::Broken(_)) => None,
        Err(error) => return Err(error.into()),
    };
    if !has_ended(process.as_ref(), remaining(until, AFTER_CONNECTION)) {
        return report(arguments, run, Outcome::Late(patience));
    }
    report(arguments, run, ended.map_or(Outcome::Unknown, |ended| Outcome::Ended(Box::new(ended))))
}

/// The time in which a process ends after it has closed its connection.
const AFTER_CONNECTION: Duration = Duration::from_secs(1);

/// Waits at most for `time` until the process has ended. Returns whether it has ended; true without a descriptor.
fn has_ended(process: Option<&OwnedFd>, time: Duration) -> bool {
    let time = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() };
    // The descriptor is readable once the process has ended.
    let is_readable =
        |process: &OwnedFd| poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&time)).is_ok_and(|ready| ready > 0);
    process.is_none_or(is_readable)
}

/// Returns the time until `until`, at least `least`.
fn remaining(until: Instant, least: Duration) -> Duration {
    until.saturating_duration_since(Instant::now()).max(least)
}

/// Returns true if the process with the number `number` is also the process that reports the number `claimed`. A
/// process in a container reports its number in its own PID namespace, which may differ from `number`.
fn is_called(number: u32, claimed: u32) -> bool {
    let own = || {
        let status = std::fs::read_to_string(format!("/proc/{number}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace().last()?.parse::<u32>().ok()
    };
    number == claimed || own() == Some(claimed)
}

/// The result of a request to stop.
enum Outcome {
    Ended(Box<Ended>),
    /// The pipeline has ended without a report.
    Unknown,
    /// The pipeline had not ended after this time.
    Late(Duration),
}

/// Prints the result, and returns the answer. `run` is the run's response to `hello`, and the number of its process if
/// the process is visible here.
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
            if let Some(held) = packets.dropped.get("held_at_close") {
                writeln!(
                    out,
                    "the dropped packets include {} that modules still held (held_at_close)",
                    counted(*held, "packet")
                )?;
            }
            troubles.iter().try_for_each(|trouble| writeln!(out, "{trouble}"))?;
        }
        Outcome::Unknown => {
            writeln!(printed::out(), "{name}{process} has ended without a report")?;
        }
        Outcome::Late(patience) => {
            let seconds = patience.as_secs_f64();
            let kill = pid.map_or_else(String::new, |pid| format!("; `kill -9 {pid}` ends it at once"));
            writeln!(
                printed::err(),
                "{name}{process} has not ended in {seconds} s and is still stopping. Wait longer with --timeout{kill}"
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
        // Larger than any process number: the kernel's limit is 2^22.
        assert!(!is_called(own, u32::MAX) && !is_called(u32::MAX, own));
    }

    #[test]
    fn the_remaining_time_is_never_zero() {
        let (now, least) = (Instant::now(), Duration::from_millis(1));
        assert_eq!(remaining(now, least), least);
        let hour = Duration::from_secs(3_600);
        assert!((least..=hour).contains(&remaining(now + hour, least)));
    }
}
