//! `tap`: copies packets into a capture file as they pass.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_graph::{
    Context, Declare, Function, Setup, SetupError, StateKind, files::check_writable, register, report::COPY_COUNTERS,
};
use forebay_measure::Counter;
use forebay_packet::Packet;
use forebay_ports::pcap::{WhenFull, WriteError, Writer};
use forebay_units::{Frequency, Ticks};
use schemars::JsonSchema;
use serde::Deserialize;

/// Parameters of `tap`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The capture file, in pcap format with time stamps in nanoseconds. An existing file is replaced.
    file: String,
    /// Maximum number of bytes that are copied of each packet: 1 to 65535. By default all bytes are copied.
    #[serde(default = "whole")]
    snap: u16,
    /// Maximum number of packets that are copied; later packets only pass. By default all packets are copied.
    most: Option<u64>,
}

fn whole() -> u16 {
    u16::MAX
}

/// The network function `tap`.
pub struct Tap {
    /// The writer of the file; `None` if the configuration is only checked.
    writer: Option<Writer>,
    /// The maximum number of bytes of each packet in the file.
    snap: usize,
    /// The number of packets that may still be copied.
    remaining: u64,
    /// True in simulated time, which starts in 1970.
    simulated: bool,
    /// The frequency of the clock, for time stamps.
    frequency: Frequency,
    /// An instant, and its time in nanoseconds after 1970; `None` before the first packet.
    epoch: Option<(Ticks, u64)>,
    /// The number of packets that were copied, and the number of packets that were not copied because the disk was too
    /// slow or failed.
    counts: Arc<[Counter]>,
}

impl Declare for Tap {
    type Params = Params;
    const NAME: &'static str = "tap";
    const SUMMARY: &'static str = "copies packets into a capture file as they pass";
    const HELP: &'static str = "\
        Every packet leaves through the only gate, unchanged. A separate thread writes the file. Packets wait for this \
        thread only in simulated time, or if all packets come from captures with `speed: fast`. A packet that finds no \
        room in the buffers (2 MiB) passes without a copy and is counted as `lost`. If the file can no longer be \
        written, all later packets are counted as `lost`, too. If copies are missing from the file, the run reports \
        this at its end and has exit code 1. Time stamps are the time at which a packet passed the tap; all packets of \
        a batch have the same time. In virtual time they start in 1970. If `snap` or a capture has cut a packet, the \
        file has the packet's original length. (The port of the same name is something else: an interface of the \
        host.)";
    const EXAMPLE: &'static str = "{ file: tap.pcap, snap: 128, most: 10000 }";
    // There is one file, which replicas would overwrite.
    const STATE: StateKind = StateKind::Global;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        if params.snap == 0 {
            return Err(SetupError::not_allowed("snap", "0", "1 to 65535 bytes"));
        }
        let wrong = |error: WriteError| SetupError::at("file", error.to_string());
        // The check must not create the file, because that would empty an existing one.
        let path = setup.claim("file", &params.file, true)?;
        Writer::check(&path).map_err(wrong)?;
        if setup.looks_at_files() {
            check_writable(&path).map_err(|source| WriteError::Create { path: path.clone(), source }).map_err(wrong)?;
        }
        let when_full = if setup.may_wait() { WhenFull::Wait } else { WhenFull::Refuse };
        let writer = (!setup.checking()).then(|| Writer::create(&path, when_full));
        Ok(Self {
            writer: writer.transpose().map_err(wrong)?,
            snap: params.snap.into(),
            remaining: params.most.unwrap_or(u64::MAX),
            simulated: setup.simulated(),
            frequency: setup.frequency(),
            epoch: None,
            counts: setup.counters("copies", COPY_COUNTERS.map(str::to_owned)),
        })
    }
}

impl Tap {
    /// Returns the time of `now` in nanoseconds after 1970. The clock of the system is read only in the first call.
    /// Later calls add the ticks since then.
    fn stamp(&mut self, now: Ticks) -> u64 {
        let nanos = |span: Ticks| self.frequency.nanos(span).0;
        let wall = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let simulated = self.simulated;
        let (instant, at) = *self.epoch.get_or_insert_with(|| if simulated { (Ticks::ZERO, 0) } else { (now, wall()) });
        at.saturating_add(nanos(now.since(instant)))
    }
}

impl Function for Tap {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let most = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(batch.len());
        if most == 0 {
            return;
        }
        let nanos = self.stamp(context.now());
        let mut copied = 0;
        let Some(writer) = &mut self.writer else { return };
        for packet in &batch[..most] {
            let bytes = packet.data();
            copied += u64::from(writer.write(nanos, packet.original_len(), &bytes[..bytes.len().min(self.snap)]));
        }
        self.remaining -= copied;
        for (count, seen) in self.counts.iter().zip([copied, most as u64 - copied]) {
            count.add(seen);
        }
    }

    fn close(&mut self) -> Result<(), String> {
        self.writer.as_mut().map_or(Ok(()), Writer::finish).map_err(|error| error.to_string())
    }
}

register!(Tap);

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use forebay_graph::{Gate, Rig, SetupEnvironment};
    use forebay_packet::Batch;
    use serde_json::{Value, json};

    use super::*;

    /// A folder for a test's files, which is removed after the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(test: &str) -> Self {
            let path = std::env::temp_dir().join(format!("forebay-tap-{test}-{}", std::process::id()));
            std::fs::create_dir_all(&path).expect("a writable folder for temporary files");
            Self(path)
        }

        fn rig(&self, params: &Value) -> Result<Rig, SetupError> {
            let mut environment = SetupEnvironment::new(Frequency::new(1e9));
            (environment.files.base, environment.simulated) = (self.0.clone(), true);
            Rig::within::<Tap>(params, &mut environment)
        }

        /// Returns the packets of `t.pcap`: time, original length, bytes. The file is parsed here according to the
        /// format's draft (draft-ietf-opsawg-pcap sections 4 and 5).
        fn packets(&self) -> Vec<(u64, usize, Vec<u8>)> {
            let file = std::fs::read(self.0.join("t.pcap")).expect("the file");
            let word = |at: usize| u32::from_ne_bytes(file[at..at + 4].try_into().expect("four bytes")) as usize;
            assert_eq!((word(0), word(20)), (0xa1b2_3c4d, 1), "nanoseconds, Ethernet");
            let (mut at, mut packets) = (24, Vec::new());
            while at < file.len() {
                let bytes = file[at + 16..at + 16 + word(at + 8)].to_vec();
                packets.push((word(at) as u64 * 1_000_000_000 + word(at + 4) as u64, word(at + 12), bytes));
                at += 16 + word(at + 8);
            }
            packets
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn packets_pass_and_are_in_the_file_in_order_and_cut() {
        let folder = Folder::new("order");
        let mut rig = folder.rig(&json!({ "file": "t.pcap", "snap": 50, "most": 4 })).expect("parameters");
        for n in 0..6u8 {
            rig.now = Ticks(2_000_000_000 + u64::from(n));
            let frame = vec![n; 20 * usize::from(n)];
            assert_eq!(rig.run(&frame), (Gate::FIRST, frame));
        }
        assert_eq!(rig.counters("copies").into_iter().collect::<Vec<_>>(), [("copied", 4), ("lost", 0)]);
        drop(rig);
        let expected = [(0, 0, 0), (1, 20, 20), (2, 40, 40), (3, 60, 50)];
        let expected = expected.map(|(n, original, kept)| (2_000_000_000 + n, original, vec![n as u8; kept]));
        assert_eq!(folder.packets(), expected);
    }

    /// Regression: a packet that a capture had cut was written as if it had been short on the wire.
    #[test]
    fn a_packet_that_a_capture_cut_has_its_original_length_in_the_file() {
        let folder = Folder::new("cut");
        let mut rig = folder.rig(&json!({ "file": "t.pcap", "snap": 50 })).expect("parameters");
        let mut batch = Batch::with_capacity(2);
        for (kept, missing) in [(60, 1_454), (40, 24)] {
            let mut packet = rig.packet(&vec![1; kept]);
            packet.set_missing(missing);
            batch.push(packet).expect("room");
        }
        rig.process(&mut batch);
        drop((batch, rig));
        assert_eq!(folder.packets(), [(0, 1_514, vec![1; 50]), (0, 64, vec![1; 40])]);
    }

    #[test]
    fn every_packet_is_copied_or_counted_as_lost() {
        let folder = Folder::new("flood");
        let mut rig = folder.rig(&json!({ "file": "t.pcap" })).expect("parameters");
        let mut batch = Batch::with_capacity(256);
        for _ in 0..256 {
            batch.push(rig.packet(&[7; 1_500])).expect("room");
        }
        // 77 MB are written through buffers of 2 MiB, so some copies may be lost; that depends on the disk.
        for _ in 0..200 {
            assert_eq!(rig.process(&mut batch), [Some(Gate::FIRST); 256]);
        }
        let counted = rig.counters("copies");
        let (copied, lost) = (counted["copied"], counted["lost"]);
        assert_eq!(copied + lost, 200 * 256);
        drop((batch, rig));
        let packets = folder.packets();
        assert_eq!(packets.len() as u64, copied);
        assert!(packets.iter().all(|(_, original, bytes)| *original == 1_500 && *bytes == [7; 1_500]));
    }

    #[test]
    fn invalid_parameters_are_named() {
        let folder = Folder::new("faults");
        let refusal = |params| folder.rig(&params).err().expect("refused").to_string();
        assert_eq!(refusal(json!({ "file": "t.pcap", "snap": 0 })), "snap: 0: allowed are 1 to 65535 bytes");
        let error = refusal(json!({ "file": "no/such/folder/t.pcap" }));
        assert!(error.starts_with("file: ") && error.contains("no/such/folder/t.pcap"), "{error}");
    }
}
