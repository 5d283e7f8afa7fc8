//! Real API servers with an etcd each, as `scripts/need-kubernetes.sh` builds them.

#[path = "servers/admin.rs"]
mod admin;
#[path = "servers/program.rs"]
mod program;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use lock_testing::{FaultProxy, free_port, not_run};
use serde_json::{Value, json};

use self::program::{Program, wait_until};

pub(crate) use self::admin::Namespace;

const FOLDER: &str = "target/servers/kubernetes-1.37.2";

/// The name of the context in every kubeconfig.
const CONTEXT: &str = "test";

/// The token of a user who may do everything.
const ADMIN: &str = "the-token-of-the-administrator";

/// Notes each request to a Lease, once it is answered.
const AUDIT: &str = r#"{
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}]},
        {"level": "None"}
    ]
}"#;

fn installed(program: &str) -> Option<PathBuf> {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    above.map(|above| above.join(FOLDER).join(program)).find(|file| file.exists())
}

/// Returns the candidate that stands for election with client-go.
pub(crate) fn candidate() -> Option<PathBuf> {
    installed("candidate.built-from").and(installed("candidate"))
}

/// Returns whether servers can be started.
pub(crate) fn can_start() -> bool {
    ["kube-apiserver", "etcd"].into_iter().all(|program| installed(&format!("{program}.built-from")).is_some())
}

/// Returns whether servers can be started, and names the test if not.
pub(crate) fn is_installed() -> bool {
    let is = can_start();
    if !is {
        not_run("Kubernetes is not installed; with Go: sh scripts/need-kubernetes.sh");
    }
    is
}

/// An API server that keeps its objects in an etcd of its own.
pub(crate) struct ApiServer {
    folder: PathBuf,
    port: u16,
    etcd: Program,
    api: Program,
}

impl ApiServer {
    /// Starts a server. `None` where Kubernetes is not installed; the test is then named.
    pub(crate) fn start() -> Option<Self> {
        is_installed().then(Self::started)
    }

    /// Returns the server that tests of this process share. It ends with the process. `None` where Kubernetes is not
    /// installed; the test is then named.
    pub(crate) fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<ApiServer> = OnceLock::new();
        is_installed().then(|| SHARED.get_or_init(Self::started))
    }

    fn started() -> Self {
        let mut said = String::new();
        for _ in 0..5 {
            // Another process may take a port before a server does.
            let mut server = Self::new();
            server.etcd.launch();
            server.api.launch();
            if server.is_soon_ready() {
                return server;
            }
            said = server.log();
        }
        panic!("the API server does not start; the logs:\n{said}");
    }

    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("lock-k8s-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        let [port, store, peers] = [(); 3].map(|()| free_port(false));
        let file = |name: &str| folder.join(name).display().to_string();
        let local = |port: u16| format!("http://127.0.0.1:{port}");

        let mut etcd = Program::new(&folder, "etcd", &installed("etcd").expect("it is installed"));
        etcd.arguments(["--name=test", "--log-level=warn", "--unsafe-no-fsync"]);
        etcd.argument("data-dir", &file("data"));
        for (name, address) in [("client", local(store)), ("peer", local(peers))] {
            etcd.argument(&format!("listen-{name}-urls"), &address);
        }
        etcd.argument("advertise-client-urls", &local(store));
        etcd.argument("initial-advertise-peer-urls", &local(peers));
        etcd.argument("initial-cluster", &format!("test={}", local(peers)));

        let mut api = Program::new(&folder, "kube-apiserver", &installed("kube-apiserver").expect("it is installed"));
        api.argument("etcd-servers", &local(store));
        api.argument("secure-port", &port.to_string());
        api.arguments(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none"]);
        // The server makes the certificate and its key. The key signs the tokens of service accounts too.
        api.argument("cert-dir", &file("certificates"));
        api.argument("service-account-key-file", &file("certificates/apiserver.key"));
        api.argument("service-account-signing-key-file", &file("certificates/apiserver.key"));
        api.arguments([
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
        ]);
        api.argument("token-auth-file", &file("tokens.csv"));
        api.arguments(["--authorization-mode=RBAC"]);
        api.argument("audit-policy-file", &file("audit.json"));
        api.argument("audit-log-path", &file("audit.log"));

        fs::write(file("tokens.csv"), format!("{ADMIN},admin,admin,system:masters\n")).unwrap();
        fs::write(file("audit.json"), AUDIT).unwrap();
        Self { folder, port, etcd, api }
    }

    /// Waits until the server serves, and returns false if it ends instead.
    fn is_soon_ready(&self) -> bool {
        let ended = || self.etcd.has_ended() || self.api.has_ended();
        wait_until(|| ended() || self.is_ready()) && !ended()
    }

    /// A server of another test could have the same port, but has another certificate.
    fn is_ready(&self) -> bool {
        self.ask("GET", "/readyz", "").is_ok()
    }

    /// Returns what the programs have written into their logs.
    fn log(&self) -> String {
        self.etcd.log() + &self.api.log()
    }

    /// Returns the URL of the namespace `default`, for a user who may do everything.
    pub(crate) fn url(&self) -> String {
        self.place("default").url()
    }

    /// Returns the same URL, for connections that pass through a proxy.
    pub(crate) fn url_through(&self, proxy: &FaultProxy) -> String {
        self.url_at(proxy.port())
    }

    /// Returns the same URL, for connections to another port.
    pub(crate) fn url_at(&self, port: u16) -> String {
        self.place("default").url_at(port)
    }

    /// Returns the TCP port, for a [`FaultProxy`].
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Writes a kubeconfig, and returns its path.
    fn kubeconfig(&self, user: &str, login: &Value, port: u16) -> PathBuf {
        let path = self.folder.join(format!("{user}-{port}.kubeconfig"));
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": CONTEXT,
            "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": user}}],
            "users": [{"name": user, "user": login}],
            "clusters": [{"name": CONTEXT, "cluster": {
                "server": format!("https://127.0.0.1:{port}"),
                "certificate-authority": self.folder.join("certificates/apiserver.crt"),
            }}],
        });
        // Renamed, because another thread of the test may read it at this moment.
        let new = path.with_extension(format!("{:?}", std::thread::current().id()));
        fs::write(&new, text.to_string()).unwrap();
        fs::rename(&new, &path).unwrap();
        path
    }

    /// Kills the API server. Its etcd goes on.
    pub(crate) fn kill(&mut self) {
        self.api.end(true);
    }

    /// Starts the API server again that was killed. It has forgotten all versions before, so a watch from one gets 410.
    pub(crate) fn restart(&mut self) {
        self.api.launch();
        assert!(self.is_soon_ready(), "it does not start again; the logs:\n{}", self.log());
    }

    /// Stops the API server as SIGSTOP does.
    pub(crate) fn freeze(&self) {
        self.api.freeze();
    }

    pub(crate) fn thaw(&self) {
        self.api.thaw();
    }

    /// Keeps a copy of the etcd as it is now, for [`restart_with_older_etcd`](Self::restart_with_older_etcd).
    pub(crate) fn back_up(&self) {
        // A copy of the files of a process that stands still is the state that a crash leaves.
        self.etcd.freeze();
        copy(&self.folder.join("data"), &self.folder.join("older"));
        self.etcd.thaw();
    }

    /// Kills both programs, and starts them with the etcd of the last [`back_up`](Self::back_up), as after a restore.
    pub(crate) fn restart_with_older_etcd(&mut self) {
        self.api.end(true);
        self.etcd.end(true);
        let data = self.folder.join("data");
        fs::remove_dir_all(&data).unwrap();
        copy(&self.folder.join("older"), &data);
        self.etcd.launch();
        self.restart();
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.api.end(false);
        self.etcd.end(false);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (from, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).unwrap();
        }
    }
}
