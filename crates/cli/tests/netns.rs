//! The demonstration between network namespaces (`make demo-netns`) in its short form: Linux's own stack is the peer of a router, a
//! gateway, a VPN, a user plane function, a load balancer and a VXLAN. Each scene is a test; one runs at a time.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/demo-netns");
/// A scene takes some seconds; this is where something hangs.
const LIMIT: Duration = Duration::from_secs(240);
static STAGE: Mutex<()> = Mutex::new(());

// Not `println`, which the test harness keeps to itself.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Why no scene can be played here.
fn hindrance() -> Option<String> {
    let run = |program: &str, arguments: &[&str]| match Command::new(program).args(arguments).output() {
        Err(error) => Some(format!("no `{program}`: {error}")),
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    };
    let name = format!("fbprobe-{}", std::process::id());
    run("python3", &["--version"])
        .or_else(|| run("ip", &["netns", "add", &name]))
        .or_else(|| run("ip", &["netns", "del", &name]))
}

/// Plays a scene with downloads of so many megabytes; what is n/a here is told aloud.
fn play(scene: &str, megabytes: u32) {
    let _alone = STAGE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(why) = hindrance() {
        return tell(&format!("skipped: the scene {scene} between network namespaces: {why}"));
    }
    let megabytes = megabytes.to_string();
    let mut script = Command::new(SCRIPT)
        .args(["--no-install", "--short", "--only", scene, "--megabytes", &megabytes])
        .args(["--forebay", env!("CARGO_BIN_EXE_forebay")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python3 is there");
    let (mut out, mut error) = (script.stdout.take().expect("piped"), script.stderr.take().expect("piped"));
    let reader = thread::spawn(move || {
        let mut said = String::new();
        out.read_to_string(&mut said).map(|_| said)
    });
    let errors = thread::spawn(move || {
        let mut said = String::new();
        error.read_to_string(&mut said).map(|_| said)
    });
    let end = Instant::now() + LIMIT;
    let mut late = false;
    let status = loop {
        if let Some(status) = script.try_wait().expect("it is ours") {
            break status;
        }
        if Instant::now() > end && !late {
            late = true;
            // It takes everything away before it ends.
            let id = i32::try_from(script.id()).ok().and_then(rustix::process::Pid::from_raw).expect("a process");
            rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("it is ours");
        }
        thread::sleep(Duration::from_millis(50));
    };
    let said = reader.join().expect("it only reads").expect("UTF-8");
    let errors = errors.join().expect("it only reads").expect("UTF-8");
    said.lines().filter(|line| line.contains(" n/a ")).for_each(|line| tell(&format!("skipped: {line}")));
    assert!(status.success() && !late, "{status}\n{said}\n{errors}");
    assert!(said.contains(" PASS ") || said.contains(" n/a "), "{said}\n{errors}");
}

#[test]
fn a_router_between_two_networks() {
    play("router", 5);
}

#[test]
fn a_gateway_with_firewall_and_translator() {
    play("gateway", 5);
}

#[test]
fn an_offices_internet_gateway() {
    play("office", 1);
}

#[test]
fn a_tunnel_between_two_sites() {
    play("vpn", 5);
}

#[test]
fn a_user_plane_function() {
    play("upf", 5);
}

#[test]
fn a_load_balancer_over_three_servers() {
    play("balancer", 5);
}

#[test]
fn a_vxlan_of_the_kernel() {
    play("vxlan", 5);
}

#[test]
fn tcp_through_a_tunnel_that_its_hosts_do_not_know_of() {
    play("clamp", 5);
}

/// `examples/vpn-site.yaml` dropped every packet of its peer that came in fragments of the outer packet.
#[test]
fn a_tunnel_whose_peer_sends_fragments() {
    play("site", 5);
}

#[test]
fn esp_of_the_kernel() {
    play("xfrm", 5);
}
