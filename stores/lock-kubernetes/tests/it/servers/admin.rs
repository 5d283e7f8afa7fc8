//! The steps of an administrator: a namespace for each test, users with some rights, and a look at the requests.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use kube::config::{KubeConfigOptions, Kubeconfig};
use lock_testing::FaultProxy;
use serde_json::{Value, json};

use super::program::wait_until;
use super::{ADMIN, ApiServer, CONTEXT};

const LEASES: &str = "coordination.k8s.io";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

impl ApiServer {
    /// Makes a namespace for one test.
    pub(crate) fn namespace(&self) -> Namespace<'_> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        self.create("/api/v1/namespaces", &json!({"metadata": {"name": name}}));
        self.place(&name)
    }

    pub(super) fn place(&self, name: &str) -> Namespace<'_> {
        Namespace { server: self, name: name.to_owned() }
    }

    /// Makes all objects of a manifest, as `kubectl apply` does.
    pub(crate) fn apply(&self, manifest: &str) {
        for object in manifest.split("\n---\n") {
            let named = |name: &str| object.lines().find_map(|line| line.trim_start().strip_prefix(name));
            let (version, kind) = (named("apiVersion: ").unwrap(), named("kind: ").unwrap());
            let group = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
            let place = named("namespace: ").map_or_else(String::new, |place| format!("/namespaces/{place}"));
            let path = format!("{group}{place}/{}s", kind.to_lowercase());
            self.ask("POST", &path, object).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
    }

    /// Returns a service account that there is already, with a token of it.
    pub(crate) fn account(&self, namespace: &str, name: &str) -> User<'_> {
        let user = User::new(&self.place(namespace), name);
        user.write_token();
        user
    }

    /// Sends one request as a user who may do everything, and returns the body of the answer.
    pub(super) fn ask(&self, method: &str, path: &str, body: &str) -> Result<String, kube::Error> {
        let config = self.place("default").kubeconfig();
        // JSON is YAML too.
        let request = http::Request::builder().method(method).uri(path).header("content-type", "application/yaml");
        let request = request.body(body.as_bytes().to_vec()).unwrap();
        let ask = async {
            // The client panics without a provider if several are compiled in. The store installs one only when it connects.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let config = Kubeconfig::read_from(config).unwrap();
            // The certificate is not there yet, or it is half of one.
            let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
            let config = config.map_err(|error| kube::Error::Service(error.into()))?;
            kube::Client::try_from(config)?.request_text(request).await
        };
        // A thread of its own, because the caller may be inside a runtime.
        std::thread::scope(|threads| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            threads.spawn(move || runtime.block_on(ask)).join().unwrap()
        })
    }

    /// Returns the names of the Leases in the namespace `default` that have a holder.
    #[allow(dead_code, reason = "for the proof")]
    pub(crate) fn held(&self) -> Vec<String> {
        let list = self.ask("GET", "/apis/coordination.k8s.io/v1/namespaces/default/leases", "").unwrap();
        let list: Value = serde_json::from_str(&list).unwrap();
        let is_held = |lease: &&Value| !lease["spec"]["holderIdentity"].as_str().unwrap_or_default().is_empty();
        let name = |lease: &Value| lease["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        list["items"].as_array().unwrap().iter().filter(is_held).map(name).collect()
    }

    fn create(&self, path: &str, object: &Value) -> Value {
        let answer = self.ask("POST", path, &object.to_string()).unwrap_or_else(|error| panic!("{path}: {error}"));
        serde_json::from_str(&answer).unwrap()
    }

    fn delete(&self, path: &str) {
        self.ask("DELETE", path, "").unwrap_or_else(|error| panic!("{path}: {error}"));
    }
}

/// A namespace of an [`ApiServer`].
#[derive(Clone)]
pub(crate) struct Namespace<'a> {
    server: &'a ApiServer,
    pub(crate) name: String,
}

/// A request to a Lease, as the server has noted it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) verb: String,
    pub(crate) lease: String,
    pub(crate) user: String,
    pub(crate) status: u64,
}

impl<'a> Namespace<'a> {
    /// Returns the URL for a user who may do everything.
    pub(crate) fn url(&self) -> String {
        self.url_at(self.server.port())
    }

    /// Returns the same URL, for connections that pass through a proxy.
    pub(crate) fn url_through(&self, proxy: &FaultProxy) -> String {
        self.url_at(proxy.port())
    }

    /// Returns the kubeconfig in that URL.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig_at(self.server.port())
    }

    fn kubeconfig_at(&self, port: u16) -> PathBuf {
        self.server.kubeconfig("admin", &json!({"token": ADMIN}), port)
    }

    pub(super) fn url_at(&self, port: u16) -> String {
        self.url_with(&self.kubeconfig_at(port))
    }

    fn url_with(&self, kubeconfig: &Path) -> String {
        format!("kubernetes://{CONTEXT}/{}?kubeconfig={}", self.name, kubeconfig.display())
    }

    /// Makes a service account whose Role has only these verbs on Leases.
    pub(crate) fn user(&self, verbs: &[&str]) -> User<'a> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("user-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let user = User::new(self, &name);
        let (name, namespace) = (&user.name, &self.name);
        let metadata = json!({"name": name});
        let rules = match verbs {
            [] => json!([]),
            verbs => json!([{"apiGroups": [LEASES], "resources": ["leases"], "verbs": verbs}]),
        };
        self.server
            .create(&format!("{RBAC}/namespaces/{namespace}/roles"), &json!({"metadata": metadata, "rules": rules}));
        let binding = json!({
            "metadata": metadata,
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        });
        self.server.create(&format!("{RBAC}/namespaces/{namespace}/rolebindings"), &binding);
        user.log_in();
        // The server reads new Roles a moment later.
        if let Some(verb) = verbs.first() {
            assert!(wait_until(|| user.may(verb)), "{name} may not {verb}");
        }
        user
    }

    /// Returns the answered requests to the Leases of this namespace, in the order of their answers. A watch counts when
    /// it begins.
    pub(crate) fn requests(&self) -> Vec<Request> {
        let log = fs::read_to_string(self.server.folder.join("audit.log")).unwrap_or_default();
        let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let ours = events.filter(|event| event["objectRef"]["namespace"] == self.name.as_str());
        let counts = ours.filter(|event| (event["verb"] == "watch") == (event["stage"] == "ResponseStarted"));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let request = |event: Value| Request {
            verb: text(&event["verb"]),
            lease: text(&event["objectRef"]["name"]),
            user: text(&event["user"]["username"]),
            status: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
        };
        counts.map(request).collect()
    }
}

/// A service account with some rights, which reads its token from a file.
pub(crate) struct User<'a> {
    namespace: Namespace<'a>,
    name: String,
    token: PathBuf,
}

impl<'a> User<'a> {
    fn new(namespace: &Namespace<'a>, name: &str) -> Self {
        let token = namespace.server.folder.join(format!("{name}.token"));
        Self { namespace: namespace.clone(), name: name.to_owned(), token }
    }

    /// Returns the URL with a kubeconfig that names the file of the token.
    pub(crate) fn url(&self) -> String {
        let server = self.namespace.server;
        self.namespace.url_with(&server.kubeconfig(&self.name, &json!({"tokenFile": self.token}), server.port()))
    }

    /// Makes the account, and writes a token of it into the file, as the kubelet does for a pod.
    pub(crate) fn log_in(&self) {
        self.namespace.server.create(&self.accounts(), &json!({"metadata": {"name": self.name}}));
        self.write_token();
    }

    fn write_token(&self) {
        let request = json!({"spec": {"expirationSeconds": 3600}});
        let answer = self.namespace.server.create(&format!("{}/{}/token", self.accounts(), self.name), &request);
        fs::write(&self.token, answer["status"]["token"].as_str().expect("a token")).unwrap();
    }

    /// Ends the account, so that its token is refused with 401, as one that has expired. The server may accept the token
    /// for 10 s more.
    pub(crate) fn expire(&self) {
        self.namespace.server.delete(&format!("{}/{}", self.accounts(), self.name));
    }

    fn accounts(&self) -> String {
        format!("/api/v1/namespaces/{}/serviceaccounts", self.namespace.name)
    }

    /// Returns whether the server permits a verb on Leases, as it reads the Roles now.
    pub(crate) fn may(&self, verb: &str) -> bool {
        let (namespace, name) = (&self.namespace.name, &self.name);
        let review = json!({"spec": {
            "user": format!("system:serviceaccount:{namespace}:{name}"),
            "resourceAttributes": {"namespace": namespace, "verb": verb, "group": LEASES, "resource": "leases"},
        }});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        self.namespace.server.create(path, &review)["status"]["allowed"] == true
    }
}
