//! The kinds of stores that we keep locks in.

use serde::{Deserialize, Serialize};

/// A store, by the ports of its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Store {
    /// One server.
    Server(u16),
    /// One server with a replica that must have a lock before it counts.
    Acked(u16),
    /// The master that a sentinel names.
    Sentinel(u16),
    /// The masters of a cluster, by one of them.
    Cluster(u16),
    /// A majority of three.
    Three([u16; 3]),
    /// A majority of five.
    Five([u16; 5]),
}

impl Store {
    /// Returns the URL that a user writes.
    pub(crate) fn url(self) -> String {
        let host = |port: u16| format!("127.0.0.1:{port}");
        let hosts = |ports: &[u16]| ports.iter().map(|port| host(*port)).collect::<Vec<_>>().join(",");
        match self {
            Self::Server(port) => format!("redis://{}", host(port)),
            Self::Acked(port) => format!("redis://{}?acks=1", host(port)),
            Self::Sentinel(port) => format!("redis+sentinel://{}/mymaster", host(port)),
            Self::Cluster(port) => format!("redis+cluster://{}", host(port)),
            Self::Three(ports) => format!("redlock://{}", hosts(&ports)),
            Self::Five(ports) => format!("redlock://{}", hosts(&ports)),
        }
    }
}
