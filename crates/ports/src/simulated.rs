//! Refuses ports of the host in simulated runs, because the host has only real time.

use forebay_graph::{Setup, SetupError};

/// Returns an error if time is simulated. `port` is the type of the port.
pub(crate) fn refuse_simulated(setup: &Setup<'_>, port: &str) -> Result<(), SetupError> {
    if setup.simulated() {
        let wrong = format!("{port} ports cannot be part of a simulated run");
        return Err(SetupError::with_hint("", wrong, "use a generator, pcap or sink port"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use forebay_graph::SetupEnvironment;
    use forebay_units::Frequency;

    use super::*;

    #[test]
    fn only_simulated_runs_are_refused() {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        assert!(refuse_simulated(&Setup::new("in", &mut environment), "tap").is_ok());
        environment.simulated = true;
        let error = refuse_simulated(&Setup::new("in", &mut environment), "tap").expect_err("simulated").to_string();
        assert_eq!(error, "tap ports cannot be part of a simulated run: use a generator, pcap or sink port");
    }
}
