//! The kinds of stores that this library can keep locks in.

use serde::{Deserialize, Serialize};

/// A store, by the ports of its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Store {
    /// One server.
    Server(u16),
    /// One server with a replica. A lock counts only after the replica has confirmed it.
    Acked(u16),
    /// The master that a sentinel publishes.
    Sentinel(u16),
    /// The masters of a cluster, found through one of them.
    Cluster(u16),
    /// A majority of three members.
    Three([u16; 3]),
    /// A majority of five members.
    Five([u16; 5]),
}

impl Store {
    /// Returns the URL for this store, as a user would write it.
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
