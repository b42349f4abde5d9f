//! The order in which ports are read when the scheduler shares time.
//!
//! If one port fills a queue, the ports that come later in the round must not be read. So the port that has waited
//! longest comes first. Then all ports that lead to the queue are read equally often, at whatever intervals the queue
//! has room. A plain rotation does not suffice: with n ports, and a queue that has room once in n turns, the same port
//! would always fill the queue.

/// Ports in the order of their last packets: the port that gave packets the longest time ago comes first.
#[derive(Debug, Default)]
pub(super) struct Rota {
    /// All ports, in the order of the next round.
    order: Vec<u32>,
    /// The ports that gave packets in this round, in order.
    gave: Vec<u32>,
}

impl Rota {
    pub(super) fn new(ports: usize) -> Self {
        Self { order: (0..ports as u32).collect(), gave: Vec::with_capacity(ports) }
    }

    /// Calls `read` once for each port. `read` returns whether the port gave packets. If so, the port comes last in the
    /// next round.
    #[inline]
    pub(super) fn go_round(&mut self, mut read: impl FnMut(usize) -> bool) {
        let mut kept = 0;
        for at in 0..self.order.len() {
            let port = self.order[at];
            if read(port as usize) {
                self.gave.push(port);
            } else {
                self.order[kept] = port;
                kept += 1;
            }
        }
        if self.gave.is_empty() {
            return;
        }
        self.order[kept..].copy_from_slice(&self.gave);
        self.gave.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_port_that_gave_last_comes_last_and_no_port_is_lost(
            rounds in proptest::collection::vec(proptest::collection::vec(any::<bool>(), 7), 0..40),
        ) {
            let mut rota = Rota::new(7);
            let mut last: Vec<(usize, usize)> = (0..7).map(|port| (0, port)).collect();
            for (number, gives) in rounds.iter().enumerate() {
                let mut seen = Vec::new();
                rota.go_round(|port| {
                    seen.push(port);
                    gives[port]
                });
                let mut expected: Vec<usize> = (0..7).collect();
                expected.sort_by_key(|port| last[*port]);
                prop_assert_eq!(&seen, &expected);
                for (position, port) in seen.into_iter().enumerate().filter(|(_, port)| gives[*port]) {
                    last[port] = (number + 1, position);
                }
            }
        }
    }
}
