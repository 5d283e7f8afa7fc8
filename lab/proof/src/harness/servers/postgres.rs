//! A PostgreSQL server, which clients reach directly or through a pooler in transaction mode.

use lock_testing::{PostgresPooler, PostgresServer};

use crate::harness::servers::Topology;

pub(crate) struct Database {
    server: PostgresServer,
    pooler: Option<PostgresPooler>,
}

/// Tables that locks may leave rows in: the name of the table, and a query for the rows that still count.
const REMNANTS: [(&str, &str); 3] = [
    ("lock_core.lock", "SELECT 'the lock ' || key FROM lock_core.lock WHERE owner IS NOT NULL AND until > now()"),
    ("_pg_lease", "SELECT 'the lease ' || name FROM _pg_lease WHERE held_until > now()"),
    ("pg_locks", "SELECT 'an advisory lock of session ' || pid FROM pg_locks WHERE locktype = 'advisory'"),
];

impl Database {
    /// Says what must be installed first, if anything.
    pub(crate) fn missing(pooled: bool) -> Option<String> {
        PostgresServer::missing(if pooled { &["initdb", "pgbouncer"] } else { &["initdb"] })
    }

    pub(crate) fn start(pooled: bool) -> Self {
        let server = PostgresServer::start();
        // The set of Jepsen's third workload, the same for every library.
        server.run("CREATE TABLE proof_set (key text PRIMARY KEY, elements bigint[] NOT NULL)");
        let pooler = pooled.then(|| server.pooler());
        Self { server, pooler }
    }
}

impl Topology for Database {
    fn addresses(&self) -> usize {
        1
    }

    fn port(&self, _: usize) -> u16 {
        let Some(pooler) = &self.pooler else { return self.server.port() };
        let url = pooler.url();
        let (_, place) = url.rsplit_once(':').unwrap();
        place.trim_end_matches("/postgres").parse().unwrap()
    }

    fn url(&self, proxies: &[u16]) -> String {
        format!("postgres://test@127.0.0.1:{}/postgres", proxies[0])
    }

    fn pause(&self, _: usize) {
        self.server.pause(true);
    }

    fn resume(&self, _: usize) {
        self.server.pause(false);
    }

    fn kill_clients(&self, _: usize) {
        self.server.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
             AND backend_type = 'client backend'",
        );
    }

    fn remnants(&self) -> Vec<String> {
        let of = |(table, sql): &(&str, &str)| {
            let is_there = self.server.run(&format!("SELECT to_regclass('{table}') IS NOT NULL")) == "t";
            if is_there { self.server.run(sql).lines().map(str::to_owned).collect() } else { Vec::new() }
        };
        REMNANTS.iter().flat_map(of).collect()
    }

    fn sets(&self) -> Vec<(String, Vec<u64>)> {
        let all = self.server.run("SELECT key || ' ' || array_to_string(elements, ' ') FROM proof_set");
        let set = |line: &str| {
            let mut words = line.split(' ');
            let key = words.next().unwrap().to_owned();
            (key, words.filter(|word| !word.is_empty()).map(|word| word.parse().unwrap()).collect())
        };
        all.lines().map(set).collect()
    }
}
