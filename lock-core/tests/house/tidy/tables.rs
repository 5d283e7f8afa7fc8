//! Which folder stands on which.

/// A folder in layers, from the ground up. Its modules import only from layers below their own, not
/// from their own layer and not from above. Two modules that make each other share a line.
pub(super) struct Layers {
    /// The source of a crate, seen from the crate of this test.
    pub(super) source: &'static str,
    /// The module in it whose folder this is; nothing is the root.
    pub(super) within: &'static str,
    pub(super) modules: &'static [&'static [&'static str]],
}

pub(super) const CORE: &str = "src";
pub(super) const STORE: &str = "../stores/lock-store/src";
pub(super) const REDIS: &str = "../stores/lock-redis/src";
pub(super) const QUORUM: &str = "../stores/lock-quorum/src";
pub(super) const TESTING: &str = "../testing/lock-testing/src";
pub(super) const METRICS: &str = "../lock-metrics/src";
pub(super) const MACROS: &str = "../lock-macros/src";
pub(super) const LOCKCTL: &str = "../lockctl/src";
pub(super) const POSTGRES: &str = "../stores/lock-postgres/src";
pub(super) const REDISSON: &str = "../stores/lock-redisson/src";
pub(super) const ZOOKEEPER: &str = "../stores/lock-zookeeper/src";
pub(super) const KUBERNETES: &str = "../stores/lock-kubernetes/src";
pub(super) const GENERATE: &str = "../dashboards/generate/src";
pub(super) const BENCH: &str = "../lab/benches/src";
pub(super) const PROOF: &str = "../lab/proof/src";

pub(super) const TABLES: &[Layers] = &[
    Layers {
        source: CORE,
        within: "",
        modules: &[
            // The gate's mutex, which is of lock-store.
            &["sync"],
            // The store in memory and the machinery know nothing of each other.
            &["engine", "memory"],
            &["api"],
            &["attribute"],
            &["testing"],
            &["lib"],
        ],
    },
    Layers { source: STORE, within: "", modules: &[&["types"], &["contract"], &["thread"], &["lib"]] },
    Layers {
        source: STORE,
        within: "types",
        modules: &[
            &["system"],
            &["fencing", "key"],
            &["order", "owner"],
            &["error mode"],
            &["naming", "options"],
            &["url"],
        ],
    },
    Layers {
        source: STORE,
        within: "types::system",
        modules: &[&["random"], &["blocking", "clock", "fork", "sync", "text"], &["backoff", "call_site", "together"]],
    },
    Layers { source: STORE, within: "contract", modules: &[&["event"], &["backend"]] },
    Layers {
        source: CORE,
        within: "engine",
        modules: &[
            &["fnv", "gate", "report", "timer"],
            &["lease"],
            &["shared"],
            &["claim", "watch"],
            &["handle"],
            &["hold"],
            &["context"],
            &["acquire", "keeper"],
        ],
    },
    Layers { source: CORE, within: "engine::report", modules: &[&["event_context"], &["trace"]] },
    Layers { source: CORE, within: "engine::watch", modules: &[&["following", "watchdog"]] },
    Layers { source: CORE, within: "engine::claim", modules: &[&["tag"], &["free", "spec"], &["pending"], &["all"]] },
    Layers { source: CORE, within: "engine::hold", modules: &[&["release"], &["owned"]] },
    Layers {
        source: CORE,
        within: "api",
        modules: &[
            &["fencing", "guard", "outcome", "stripe"],
            &["protect"],
            &["lock manager"],
            &["connect", "global", "lease", "overriding", "roles", "shutdown", "striped", "web"],
            &["inspect"],
        ],
    },
    Layers { source: CORE, within: "api::lease", modules: &[&["held"], &["text"]] },
    Layers { source: CORE, within: "api::roles", modules: &[&["election", "job", "once"]] },
    Layers { source: CORE, within: "api::inspect", modules: &[&["scan", "topology"]] },
    Layers { source: CORE, within: "attribute", modules: &[&["site"], &["refusal"], &["body", "once", "request"]] },
    Layers {
        source: TESTING,
        within: "",
        modules: &[
            &["servers"],
            &["events", "history", "inbox", "limit", "not_run", "stopwatch"],
            &["conformance", "recorder"],
            &["lib"],
        ],
    },
    Layers {
        source: TESTING,
        within: "servers",
        modules: &[
            &["installed", "process", "relative", "reply"],
            &["proxy", "session"],
            &["server"],
            &["cluster", "postgres", "sentinel"],
        ],
    },
    Layers {
        source: REDIS,
        within: "",
        modules: &[
            &["on_drop", "services"],
            &["protocol"],
            &["error"],
            &["connection"],
            &["batch"],
            &["sentinel"],
            &["server"],
            &["calls"],
            &["cluster"],
            // The store itself: its parts are written for it.
            &["masters"],
            &["builder doctor inspect layout lib"],
        ],
    },
    Layers { source: REDIS, within: "protocol", modules: &[&["clock", "value"], &["keys"], &["steps"]] },
    Layers {
        source: REDIS,
        within: "protocol::steps",
        modules: &[&["script"], &["lib", "step"], &["beside", "lock"], &["member", "messages", "several", "share"]],
    },
    Layers {
        source: REDIS,
        within: "connection",
        modules: &[
            &["link"],
            &["credentials", "pem", "url"],
            &["connect", "redirect", "slots"],
            &["certificates", "greeting"],
        ],
    },
    Layers {
        source: REDIS,
        within: "batch",
        modules: &[&["inline_task", "places", "unsettled"], &["exchange"], &["node"], &["coalesce"]],
    },
    Layers {
        source: REDIS,
        within: "server",
        modules: &[
            &["collisions", "history", "repeats", "slot_inboxes"],
            &["changes", "common", "pool"],
            &["rounds"],
            &["node"],
            &["checks", "push", "slot_push"],
        ],
    },
    Layers {
        source: REDIS,
        within: "calls",
        modules: &[
            &["elsewhere"],
            &["durability"],
            &["run"],
            &["renew", "wrong_type"],
            &["share"],
            &["release"],
            &["acquire", "keep"],
            &["vote"],
        ],
    },
    Layers { source: REDIS, within: "cluster", modules: &[&["table", "watch"], &["look", "route"]] },
    Layers {
        source: REDIS,
        within: "inspect",
        modules: &[&["servers"], &["records", "topology", "waiters"], &["holders", "scan"], &["release"]],
    },
    Layers {
        source: REDIS,
        within: "doctor",
        modules: &[&["judge"], &["probe"], &["commands", "servers", "settings"]],
    },
    Layers {
        source: QUORUM,
        within: "",
        modules: &[
            &["round", "session", "turns"],
            &["members"],
            &["shared"],
            &["queries", "run"],
            &["inspect", "marks", "release"],
            &["repair"],
            &["acquire"],
            &["store"],
            &["url"],
            &["lib"],
        ],
    },
    Layers {
        source: MACROS,
        within: "",
        modules: &[
            &["bounds", "expr", "limit", "page", "suggest", "text"],
            &["duration", "template"],
            &["args", "returned"],
            &["function", "key"],
            &["expand"],
            &["lib"],
        ],
    },
    Layers { source: MACROS, within: "template", modules: &[&["names", "read"]] },
    Layers {
        source: MACROS,
        within: "expand",
        modules: &[&["parts"], &["docs", "refusal"], &["enter"], &["asynchronous", "synchronous"], &["future"]],
    },
    Layers {
        source: METRICS,
        within: "",
        modules: &[
            &["words"],
            &["catalog"],
            &["state"],
            &["export", "observe", "view"],
            &["shared"],
            &["listener"],
            &["install"],
            &["inspector"],
            &["lib"],
        ],
    },
    Layers {
        source: METRICS,
        within: "words",
        modules: &[&["checked", "labels", "names", "time"], &["trace"], &["settings"]],
    },
    Layers {
        source: METRICS,
        within: "state",
        modules: &[
            &["contention", "fleet", "histogram", "timeouts", "uses"],
            &["counts", "family"],
            &["node", "store", "table"],
            &["recovered"],
        ],
    },
    Layers { source: METRICS, within: "export", modules: &[&["openmetrics", "sink"], &["collect"]] },
    Layers {
        source: METRICS,
        within: "export::collect",
        modules: &[&["fleet", "live", "nodes"], &["total"], &["blame", "uses"], &["sum"]],
    },
    Layers { source: METRICS, within: "observe", modules: &[&["notices", "observer", "sampler"]] },
    Layers { source: METRICS, within: "install", modules: &[&["error"], &["handle"]] },
    Layers {
        source: LOCKCTL,
        within: "",
        modules: &[
            &["end", "screen", "values"],
            &["output", "waiting"],
            &["args", "audit"],
            &["record"],
            &["members"],
            &["listing"],
            &["commands", "run"],
            &["main"],
        ],
    },
    Layers {
        source: LOCKCTL,
        within: "args",
        modules: &[&["address", "filter", "generate", "help", "lease", "run", "shown"]],
    },
    Layers {
        source: LOCKCTL,
        within: "commands",
        modules: &[
            &[
                "dashboards",
                "doctor",
                "forget",
                "jobs",
                "leader",
                "lease",
                "locks",
                "quorum",
                "release",
                "topology",
                "watch",
            ],
            &["why"],
            &["contention"],
        ],
    },
    Layers {
        source: LOCKCTL,
        within: "commands::why",
        modules: &[&["blocked", "view", "votes"], &["store"], &["findings"], &["answer"]],
    },
    Layers {
        source: LOCKCTL,
        within: "run",
        modules: &[&["command", "signals", "terminal"], &["launcher", "sentinel"], &["running"], &["holder"]],
    },
    Layers {
        source: GENERATE,
        within: "",
        modules: &[&["generate", "runbooks"], &["installation"], &["lib"], &["main"]],
    },
    Layers {
        source: REDISSON,
        within: "",
        modules: &[&["listen", "names", "scripts"], &["seen", "store"], &["calls", "inspect"], &["lib"]],
    },
    Layers {
        source: ZOOKEEPER,
        within: "",
        modules: &[
            &["data", "error", "names", "url"],
            &["places", "session"],
            &["slot"],
            &["shared"],
            &["attend", "calls", "revoked", "sweep"],
            &["runner"],
            &["store"],
            &["doctor", "inspect"],
            &["lib"],
        ],
    },
    Layers {
        source: ZOOKEEPER,
        within: "calls",
        modules: &[&["token"], &["wait"], &["acquire"], &["beside", "release", "renew", "vote"]],
    },
    Layers {
        source: KUBERNETES,
        within: "",
        modules: &[
            &["error", "names", "server_time"],
            &["data", "url", "waiters"],
            &["connection", "record"],
            &["api", "held", "known"],
            &["shared"],
            &["calls"],
            &["watch"],
            &["runner"],
            &["store"],
            &["doctor", "inspect"],
            &["lib"],
        ],
    },
    Layers {
        source: KUBERNETES,
        within: "calls",
        modules: &[&["change"], &["beside", "renew", "wait"], &["release"], &["acquire"]],
    },
    Layers {
        source: POSTGRES,
        within: "",
        modules: &[
            &["error", "hosts", "pin"],
            &["url"],
            &["session"],
            &["calls", "listen"],
            &["senders"],
            &["runner"],
            &["store"],
            &["doctor", "inspect"],
            &["lib"],
        ],
    },
    Layers {
        source: POSTGRES,
        within: "session",
        modules: &[&["password", "role", "schema"], &["tls"], &["connection"], &["migrate"], &["open"]],
    },
    Layers {
        source: POSTGRES,
        within: "calls",
        modules: &[
            &["about", "call", "context"],
            &["values", "waiting"],
            &["pins"],
            &["beside", "locks", "marks", "renew"],
            &["inspect"],
        ],
    },
    Layers {
        source: POSTGRES,
        within: "doctor",
        modules: &[&["facts"], &["horizon", "replication", "server", "settings", "tables", "waiters"]],
    },
    Layers {
        source: GENERATE,
        within: "generate",
        modules: &[&["names", "settings"], &["panel", "rules"], &["dashboard"], &["packaging", "pages"]],
    },
    Layers {
        source: BENCH,
        within: "",
        modules: &[
            &["child", "clock", "contestant", "peers", "stats"],
            &["servers"],
            &["process"],
            &["bench", "peer"],
            &["race"],
            &["outcome"],
            &["row"],
            &["report"],
            &["cli"],
            &["main"],
        ],
    },
    Layers {
        source: BENCH,
        within: "servers",
        modules: &[&["files", "keeper", "spy"], &["server"], &["proxy", "site"]],
    },
    Layers {
        source: BENCH,
        within: "process",
        modules: &[&["record", "wire", "work"], &["load"], &["job"], &["worker"], &["fleet"], &["instructions"]],
    },
    Layers {
        source: BENCH,
        within: "row",
        modules: &[
            &["crowd", "pairs"],
            &[
                "distinct",
                "drops",
                "fleets",
                "growth",
                "hot",
                "kubernetes",
                "memory",
                "others",
                "postgres",
                "shared",
                "stores",
                "waits",
                "watchdog",
                "zookeeper",
            ],
        ],
    },
    Layers { source: BENCH, within: "row::kubernetes", modules: &[&["bare", "requests"], &["steps"]] },
    Layers { source: BENCH, within: "row::postgres", modules: &[&["server"], &["crowd"], &["steps"], &["herd"]] },
    Layers {
        source: BENCH,
        within: "contestant",
        modules: &[&["access", "store"], &["contract"], &["crates", "ours", "raw"]],
    },
    Layers {
        source: PROOF,
        within: "",
        modules: &[
            &["peers", "record"],
            &["check", "kept", "model", "mutants"],
            &["caller", "harness"],
            &["report"],
            &["race", "run", "spec"],
            &["cli"],
            &["main"],
        ],
    },
    Layers {
        source: PROOF,
        within: "caller",
        modules: &[&["adapter", "resource"], &["locks"], &["mixed", "plain", "race", "set", "traced"]],
    },
    Layers { source: PROOF, within: "caller::mixed", modules: &[&["executor", "section"], &["call", "role"]] },
    Layers {
        source: PROOF,
        within: "harness",
        modules: &[
            &["resource", "servers", "worker"],
            &["left", "refusal"],
            &["fleet"],
            &["world"],
            &["fault"],
            &["plan"],
            &["row"],
        ],
    },
    Layers { source: PROOF, within: "report", modules: &[&["table"], &["page"]] },
    Layers { source: PROOF, within: "run", modules: &[&["rows"], &["replay"]] },
    Layers {
        source: PROOF,
        within: "harness::servers",
        modules: &[&["clock"], &["cluster", "ensemble", "kubernetes", "one", "postgres", "quorum", "sentinel"]],
    },
    Layers { source: PROOF, within: "mutants", modules: &[&["patch"], &["tree"]] },
    Layers { source: PROOF, within: "check", modules: &[&["jobs", "locks", "sets", "writes"]] },
    Layers {
        source: PROOF,
        within: "spec",
        modules: &[&["value"], &["story"], &["config"], &["reach"], &["tlc"], &["trace"]],
    },
    Layers {
        source: PROOF,
        within: "spec::trace",
        modules: &[&["log", "run"], &["steps"], &["plant", "reader", "tla"], &["callers"]],
    },
];
