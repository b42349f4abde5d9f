//! Where packets enter and leave: generator, pcap, sink.
