//! The way to the API server: a kubeconfig or the service account of a pod, and the version of the server.

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use lock_store::thread::within;
use lock_store::{Clock, LockError, Result, Timestamp};

use crate::error::{Asked, chain, of_status, of_transport};
use crate::url::Settings;

/// How long it may take to connect, and to write a request.
const CONNECT: Duration = Duration::from_secs(3);
const WRITE: Duration = Duration::from_secs(10);

/// How long it may take to open a connection, with the program of the kubeconfig that gives a token.
const OPEN: Duration = Duration::from_secs(10);

/// The first version whose `resourceVersion`s may be compared.
const COMPARABLE: (u32, u32) = (1, 35);

/// A client with its credentials.
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// The name that the server gives itself, for example `v1.37.2`.
    pub(crate) version: String,
    /// Its major and minor version. `None` if they are not numbers.
    number: Option<(u32, u32)>,
    pub(crate) opened: Timestamp,
}

impl Connection {
    pub(crate) async fn open(settings: &Settings) -> Result<Self> {
        let opened = within(OPEN, Self::open_in_time(settings)).await;
        opened.unwrap_or_else(|| {
            Err(LockError::not_executed(format!("the API server of {} was not reached within {OPEN:?}", settings.node)))
        })
    }

    async fn open_in_time(settings: &Settings) -> Result<Self> {
        let (of, runtime) = (settings.clone(), tokio::runtime::Handle::current());
        // Reads files, and may run a program that gives a token.
        let made = tokio::task::spawn_blocking(move || runtime.block_on(make(&of))).await;
        let (client, default) =
            made.map_err(|_| LockError::not_executed("the credentials for the API server could not be read"))??;
        let namespace = settings.namespace.clone().unwrap_or(default);
        let asked = Asked { verb: "get", name: "/version", namespace: &namespace };
        let failed = |error| of_transport(error, asked);
        let request =
            Request::get("/version").body(Body::empty()).map_err(|error| failed(kube::Error::HttpError(error)))?;
        let answer = client.send(request).await.map_err(failed)?;
        let status = answer.status();
        let body = answer.into_body().collect().await.map_err(failed)?.to_bytes();
        if !status.is_success() {
            return Err(of_status(status, &body, asked));
        }
        let info: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let Some(version) = info["gitVersion"].as_str() else {
            let text = "the server at the URL does not answer as an API server of Kubernetes does";
            return Err(LockError::misconfigured(text));
        };
        // During an upgrade, a server behaves as an older version.
        let of = |name: &str| digits(info[name].as_str().unwrap_or_default());
        let number = of("emulationMajor").zip(of("emulationMinor")).or_else(|| of("major").zip(of("minor")));
        Ok(Self { client, namespace, version: version.to_owned(), number, opened: Clock::system().now() })
    }

    /// Returns whether numbers of its writes may be compared, which tokens need.
    pub(crate) fn gives_tokens(&self) -> bool {
        self.number.is_some_and(|number| number >= COMPARABLE)
    }

    /// Returns whether its credentials have a known end that has come.
    pub(crate) fn has_expired(&self) -> bool {
        self.client.valid_until().is_some_and(|until| until <= k8s_openapi::jiff::Timestamp::now())
    }
}

fn digits(text: &str) -> Option<u32> {
    // A provider writes 35+ for 1.35 with changes of its own.
    text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok()
}

/// Makes the client, and names the namespace of its context.
async fn make(settings: &Settings) -> Result<(Client, String)> {
    let mut config = config(settings).await?;
    (config.connect_timeout, config.write_timeout) = (Some(CONNECT), Some(WRITE));
    // Each call of the store has its own limit, and a watch may be silent for long.
    config.read_timeout = None;
    let namespace = config.default_namespace.clone();
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // A program with two providers has no default, and the client would panic. Another thread may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let client = Client::try_from(config).map_err(|error| unusable(settings, &error))?;
    Ok((client, namespace))
}

async fn config(settings: &Settings) -> Result<Config> {
    let options = KubeConfigOptions { context: settings.context.clone(), ..KubeConfigOptions::default() };
    let read = match &settings.kubeconfig {
        Some(path) => match Kubeconfig::read_from(path) {
            Ok(file) => Config::from_custom_kubeconfig(file, &options).await,
            Err(error) => Err(error),
        },
        None if settings.context.is_none() && std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() => {
            return Config::incluster().map_err(|error| unusable(settings, &error));
        }
        None => Config::from_kubeconfig(&options).await,
    };
    read.map_err(|error| unusable(settings, &error))
}

fn unusable(settings: &Settings, error: &(dyn std::error::Error + 'static)) -> LockError {
    let of = settings.context.as_ref().map_or_else(String::new, |context| format!(" of the context {context:?}"));
    let file = settings.kubeconfig.as_deref().unwrap_or("KUBECONFIG, ~/.kube/config or the service account of the pod");
    LockError::misconfigured(format!("the credentials{of} cannot be used, from {file}: {}", chain(error)))
}

#[cfg(test)]
mod tests {
    use super::digits;

    #[test]
    fn a_version_may_have_a_sign_behind_it() {
        assert_eq!(["35", "35+", "", "x"].map(digits), [Some(35), Some(35), None, None]);
    }
}
