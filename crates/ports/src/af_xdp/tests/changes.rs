//! Tests the ownership of an interface: successive ports, a killed process, and a process without capabilities.

use super::*;

#[test]
fn a_port_takes_the_interface_over_from_the_one_before_it() {
    alone("a_port_takes_the_interface_over_from_the_one_before_it", || {
        let mut around = around();
        let (mut peer, _) = open_in(&mut around, "peer", &json!({ "interface": "a0" })).expect("opened");
        let plain = json!({ "interface": "a1" });
        let (mut first, _) = open_in(&mut around, "port", &plain).expect("opened");
        let pool = pool();
        until_connected(&mut peer, &mut first, &pool);
        // A change that is finally rejected: the port that was created for it never runs.
        drop(open_in(&mut around, "port", &json!({ "interface": "a1", "send": 64 })).expect("made"));
        until_connected(&mut peer, &mut first, &pool);
        // A port with the same parameters of the sockets receives the frames that wait in the sockets.
        let (mut second, counters) = open_in(&mut around, "port", &plain).expect("made");
        receive_for(&mut first, &pool, Duration::from_millis(20), usize::MAX, &mut Vec::new());
        assert_eq!(send(&mut peer, &pool, &(100..150).map(frame).collect::<Vec<_>>()), 0);
        assert_eq!(first.close(), Ok(()));
        drop(first);
        let mut got = Vec::new();
        receive(&mut second, &pool, 50, &mut got);
        assert_eq!(numbers(&got), (100..150).collect::<Vec<_>>());
        assert_eq!(counters.dropped.get(), 0);
        // With other rings, the sockets are created again, outside the packet path.
        let (mut third, _) =
            open_in(&mut around, "port", &json!({ "interface": "a1", "send": 64, "mode": "generic" })).expect("made");
        until_connected(&mut peer, &mut second, &pool);
        drop(second);
        until_connected(&mut peer, &mut third, &pool);
        assert_eq!(third.device.as_ref().expect("open").attach_mode, program::AttachMode::Generic);
        // A series of successive ports.
        let mut before = third;
        for round in 0..20 {
            let (next, _) = open_in(&mut around, "port", &plain).expect("made");
            drop(std::mem::replace(&mut before, next));
            if round % 5 == 0 {
                until_connected(&mut peer, &mut before, &pool);
            }
        }
        until_connected(&mut peer, &mut before, &pool);
        assert_eq!((before.close(), peer.close()), (Ok(()), Ok(())));
        drop((before, peer));
        assert!(!has_program("a1"));
        assert!(open_in(&mut around, "other", &plain).is_ok());
    });
}

/// Not a test: a process that the tests below start in their namespace. It opens a port and reports the result.
#[test]
#[ignore = "the tests of this file start it"]
fn child() {
    let Ok(interface) = std::env::var("FOREBAY_TEST_AF_XDP") else { return };
    let outcome = open(&json!({ "interface": interface }));
    let _ = match &outcome {
        Ok(_) => writeln!(io::stderr(), "child: open"),
        Err(error) => writeln!(io::stderr(), "child: {error}"),
    };
    if outcome.is_ok() {
        std::thread::sleep(Duration::from_secs(60));
    }
}

fn start_child(prepare: impl FnOnce(&mut Command)) -> (std::process::Child, String) {
    use std::io::BufRead;
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", "af_xdp::tests::changes::child", "--ignored", "--nocapture"])
        .env("FOREBAY_TEST_AF_XDP", "a0");
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
    prepare(&mut command);
    let mut child = command.spawn().expect("the process starts");
    let lines = io::BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let report = lines.map_while(Result::ok).find_map(|line| Some(line.split_once("child: ")?.1.to_owned()));
    (child, report.unwrap_or_default())
}

#[test]
fn a_process_that_is_killed_leaves_the_interface_clean() {
    alone("a_process_that_is_killed_leaves_the_interface_clean", || {
        for _ in 0..3 {
            let (mut child, report) = start_child(|_| {});
            assert_eq!(report, "open");
            assert!(has_program("a0"));
            let refusal = open(&json!({ "interface": "a0" })).err().expect("refused").to_string();
            assert!(refusal.contains("another XDP program"), "{refusal}");
            // SIGKILL.
            child.kill().expect("the process runs");
            child.wait().expect("the process ended");
            assert!(!has_program("a0"));
            assert!(open(&json!({ "interface": "a0" })).is_ok());
        }
    });
}

#[test]
fn missing_capabilities_are_reported() {
    use std::os::unix::process::CommandExt;
    alone("missing_capabilities_are_reported", || {
        let (mut child, report) = start_child(|command| {
            command.uid(65_534).gid(65_534);
        });
        child.wait().expect("the process ended");
        if report.is_empty() {
            let _ = writeln!(
                io::stderr(),
                "skipped: af_xdp::tests::changes::missing_capabilities_are_reported: another user may not run this \
                 program"
            );
            return;
        }
        assert!(
            report.starts_with("interface: 'a0' needs the capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF to"),
            "{report}"
        );
    });
}
