//! The URL of a store.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use lock_store::types::url::StoreUrl;
use lock_store::{LockError, Result};

use crate::names::is_label;

/// Where a pod finds the name of its namespace.
const POD: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

const SHAPE: &str = "write kubernetes://context/namespace, or kubernetes:///namespace, or in a pod kubernetes:/// for its own namespace";

/// The settings of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The context of the kubeconfig. `None` for the service account of the pod, or else the current context.
    pub(crate) context: Option<String>,
    /// `None` for the namespace of the context or of the pod.
    pub(crate) namespace: Option<String>,
    /// The file with contexts. `None` for `KUBECONFIG` or `~/.kube/config`.
    pub(crate) kubeconfig: Option<String>,
    /// Whether servers older than 1.35 may give tokens.
    pub(crate) old_tokens: bool,
    /// The name of the store in metrics and logs.
    pub(crate) node: Arc<str>,
}

impl Settings {
    pub(crate) fn read(url: &str) -> Result<Self> {
        let is_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        Self::read_in(url, is_pod.then_some(Path::new(POD)))
    }

    /// Reads a URL, in a pod whose namespace a file names.
    fn read_in(url: &str, pod: Option<&Path>) -> Result<Self> {
        let mut url = StoreUrl::read(url);
        if url.scheme() != "kubernetes" || !url.is_absolute() || url.has_fragment() {
            return Err(bad("it is not of this form"));
        }
        let kubeconfig = url.take("kubeconfig")?.map(|path| decode(&path)).transpose()?;
        if kubeconfig.as_ref().is_some_and(String::is_empty) {
            return Err(bad("kubeconfig= names no file"));
        }
        let old_tokens = match url.take("tokens")?.as_deref() {
            None => false,
            Some("unchecked") => true,
            Some(_) => return Err(bad("tokens= has one value, unchecked, for API servers older than 1.35")),
        };
        if let Some((name, _)) = url.parameters().next() {
            let name: String = name.chars().filter(char::is_ascii_alphanumeric).take(30).collect();
            return Err(bad(&format!("there is no parameter {name}; the parameters are kubeconfig and tokens")));
        }
        // A context may have a slash in its name, which is percent-encoded.
        let (context, namespace) = url.address.split_once('/').unwrap_or((&url.address, ""));
        let (context, namespace) = (decode(context)?, namespace.trim_end_matches('/'));
        let is_namespace = is_label(namespace) && namespace.len() <= 63;
        if !namespace.is_empty() && !is_namespace {
            return Err(bad("a namespace has at most 63 letters a to z, digits and hyphens"));
        }
        // Services in several namespaces have one URL. Their stores have the names of their namespaces.
        let pod = pod.filter(|_| context.is_empty() && namespace.is_empty() && kubeconfig.is_none());
        let of_pod = pod.and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
        let namespace = if of_pod.is_empty() { namespace } else { of_pod.trim() };
        let named = [context.as_str(), namespace].into_iter().filter(|name| !name.is_empty());
        let node = match named.collect::<Vec<_>>().join("/") {
            none if none.is_empty() => "kubernetes".into(),
            node => node.into(),
        };
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Ok(Self { context: some(&context), namespace: some(namespace), kubeconfig, old_tokens, node })
    }
}

fn bad(what: &str) -> LockError {
    LockError::misconfigured(format!("the URL of Kubernetes cannot be read: {what}; {SHAPE}"))
}

fn decode(text: &str) -> Result<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let byte = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or_else(|| bad("behind a % there must be two hexadecimal digits"))?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).map_err(|_| bad("a percent-encoded part is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::Settings;

    #[test]
    fn each_part_may_be_left_out() {
        let read = |url: &str| {
            let read = Settings::read(url).unwrap();
            (read.context, read.namespace, read.kubeconfig, read.node.to_string())
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(read("kubernetes:///"), (None, None, None, "kubernetes".to_owned()));
        assert_eq!(read("kubernetes:///billing"), (None, some("billing"), None, "billing".to_owned()));
        assert_eq!(read("kubernetes://prod"), (some("prod"), None, None, "prod".to_owned()));
        assert_eq!(
            read("kubernetes://arn:aws:eks:eu-1:1:cluster%2Fa/b?kubeconfig=%2Ftmp/k"),
            (
                some("arn:aws:eks:eu-1:1:cluster/a"),
                some("b"),
                some("/tmp/k"),
                "arn:aws:eks:eu-1:1:cluster/a/b".to_owned()
            )
        );
        assert!(Settings::read("kubernetes:///?tokens=unchecked").unwrap().old_tokens);
    }

    #[test]
    fn a_store_in_a_pod_has_the_name_of_its_namespace() {
        let file = std::env::temp_dir().join(format!("lock-kubernetes-namespace-{}", std::process::id()));
        std::fs::write(&file, "billing\n").unwrap();
        let read = |url| {
            let read = Settings::read_in(url, Some(&file)).unwrap();
            (read.node.to_string(), read.namespace)
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(read("kubernetes:///"), ("billing".to_owned(), some("billing")));
        assert_eq!(read("kubernetes:///shop"), ("shop".to_owned(), some("shop")));
        assert_eq!(read("kubernetes://prod"), ("prod".to_owned(), None));
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn mistakes_are_named() {
        for (url, says) in [
            ("kubernetes:prod", "not of this form"),
            ("kubernetes://prod/Bill", "a namespace has at most 63"),
            ("kubernetes://prod/a/b", "a namespace has at most 63"),
            ("kubernetes://prod/-a", "a namespace has at most 63"),
            ("kubernetes://prod/a?session=1s", "no parameter session"),
            ("kubernetes://prod/a?kubeconfig=", "names no file"),
            ("kubernetes://prod/a?tokens=none", "one value, unchecked"),
            ("kubernetes://%zz/a", "two hexadecimal digits"),
            ("kubernetes://%/a", "two hexadecimal digits"),
        ] {
            let error = Settings::read(url).unwrap_err().to_string();
            assert!(error.contains(says), "{url}: {error}");
        }
    }
}
