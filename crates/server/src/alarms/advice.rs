//! What each alarm means for an operator.

use super::{AlarmName, Severity};

/// Returns the weight of an alarm.
pub(super) fn severity(name: AlarmName) -> Severity {
    match name {
        AlarmName::InstanceKilled
        | AlarmName::InstanceSilent
        | AlarmName::PacketsLost
        | AlarmName::PortLost
        | AlarmName::LinkDown => Severity::Critical,
        _ => Severity::Warning,
    }
}

/// Returns what an operator can do.
pub(super) fn advice(name: AlarmName) -> &'static str {
    match name {
        AlarmName::InstanceKilled => {
            "start it again with the same --state FILE; its last lines on standard error and the kernel's log \
             (`dmesg`) say why it ended"
        }
        AlarmName::InstanceSilent => {
            "look whether its process is suspended (state T in `ps`) or has no processor time; resume it with `kill \
             -CONT PID`"
        }
        AlarmName::ObjectiveMissed => {
            "look for the cause in the view of the flow (`forebay show control`); give the pipeline more workers, or \
             the flow a larger objective"
        }
        AlarmName::ObjectiveOutOfReach => {
            "state a larger objective, make the costliest module of the flow cheaper, move modules to another worker \
             (`forebay place`), or lower the rate"
        }
        AlarmName::PacketsLost => {
            "`forebay show workers` shows which worker is overloaded; add a worker, or lower the rate"
        }
        AlarmName::PoolLow => "set a larger `pool.packets`, or lower the queues and hold limits",
        AlarmName::LinkDown => "check the cable, and `ip link` of the port's interface and of its other end",
        AlarmName::PortLost => "create the interface again: the port then uses it by itself",
        AlarmName::LogLost => "check the disk of the module's file, or raise its rate limit",
        AlarmName::Oversize => "set a larger `pool.frame`, or a smaller MTU at the sender",
        AlarmName::AddressConflict => {
            "find the other station with this address, and give one of the two another address"
        }
        AlarmName::NeighbourFlood => "look for a scan in the network, or raise the limits of `interface_in`",
        AlarmName::StoreFailed => "check the disk of the store; changes over HTTP are refused until it can be written",
    }
}

/// Returns whether packets that are dropped for this reason are lost because of overload or a defect. Other reasons are
/// decisions of the configuration, for example those of a firewall.
pub(super) fn is_overload(reason: &str) -> bool {
    reason == "no_gate"
        || reason.ends_with(".backpressure")
        || reason.ends_with(".refused")
        || reason.ends_with(".full")
}
