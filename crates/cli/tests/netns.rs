//! The demonstration between network namespaces (`make demo-netns`) in its short form. Linux's network stack is the
//! peer of a router, a gateway, a VPN, a user plane function, a load balancer and a VXLAN. Each scene is a test. They
//! run one at a time.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/demo-netns");
/// The time after which a scene counts as hung. A scene takes some seconds.
const LIMIT: Duration = Duration::from_secs(240);
static STAGE: Mutex<()> = Mutex::new(());

// Not with `println`, whose output the test harness hides.
fn print(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Returns the reason if no scene can run on this machine.
fn missing_requirement() -> Option<String> {
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

/// Runs a scene with downloads of `megabytes`. Prints the parts that are n/a on this machine.
fn play(scene: &str, megabytes: u32) {
    let _alone = STAGE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(why) = missing_requirement() {
        return print(&format!("skipped: the scene {scene} between network namespaces: {why}"));
    }
    let megabytes = megabytes.to_string();
    let mut script = Command::new(SCRIPT)
        .args(["--no-install", "--short", "--only", scene, "--megabytes", &megabytes])
        .args(["--forebay", env!("CARGO_BIN_EXE_forebay")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python3 is installed");
    let (mut out, mut error) = (script.stdout.take().expect("piped"), script.stderr.take().expect("piped"));
    let reader = thread::spawn(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).map(|_| text)
    });
    let errors = thread::spawn(move || {
        let mut text = String::new();
        error.read_to_string(&mut text).map(|_| text)
    });
    let end = Instant::now() + LIMIT;
    let mut late = false;
    let status = loop {
        if let Some(status) = script.try_wait().expect("a child") {
            break status;
        }
        if Instant::now() > end && !late {
            late = true;
            // The script removes everything that it created before it ends.
            let id = i32::try_from(script.id()).ok().and_then(rustix::process::Pid::from_raw).expect("a process");
            rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("a child");
        }
        thread::sleep(Duration::from_millis(50));
    };
    let out = reader.join().expect("it only reads").expect("UTF-8");
    let errors = errors.join().expect("it only reads").expect("UTF-8");
    out.lines().filter(|line| line.contains(" n/a ")).for_each(|line| print(&format!("skipped: {line}")));
    assert!(status.success() && !late, "{status}\n{out}\n{errors}");
    assert!(out.contains(" PASS ") || out.contains(" n/a "), "{out}\n{errors}");
}

#[test]
fn the_router_scene_passes() {
    play("router", 5);
}

#[test]
fn the_gateway_scene_passes() {
    play("gateway", 5);
}

#[test]
fn the_office_gateway_scene_passes() {
    play("office", 1);
}

#[test]
fn the_vpn_scene_passes() {
    play("vpn", 5);
}

#[test]
fn the_user_plane_function_scene_passes() {
    play("upf", 5);
}

#[test]
fn the_load_balancer_scene_passes() {
    play("balancer", 5);
}

#[test]
fn the_scene_with_a_vxlan_of_the_kernel_passes() {
    play("vxlan", 5);
}

#[test]
fn the_scene_with_mss_clamping_passes() {
    play("clamp", 5);
}

/// Regression: `examples/vpn-site.yaml` dropped all packets of its peer whose outer packet came in fragments.
#[test]
fn the_scene_with_a_fragmenting_peer_passes() {
    play("site", 5);
}

#[test]
fn the_scene_with_esp_of_the_kernel_passes() {
    play("xfrm", 5);
}
