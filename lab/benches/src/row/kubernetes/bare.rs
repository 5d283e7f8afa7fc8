//! The requests of a program without this library, with the same client.

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};

use crate::Result;

/// The namespace of the bare requests. It is not that of the locks, whose managers would hear of each bare write by their watch.
const NAMESPACE: &str = "default";

/// Leases, over connections of their own.
#[derive(Clone)]
pub(super) struct Leases(Api<Lease>);

impl Leases {
    /// Uses the kubeconfig that the URL of a store names.
    pub(super) async fn open(url: &str) -> Result<Self> {
        let (_, file) = url.split_once("?kubeconfig=").ok_or("the URL names no kubeconfig")?;
        // The client panics without a default if several providers are compiled in. Another thread may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config =
            Config::from_custom_kubeconfig(Kubeconfig::read_from(file)?, &KubeConfigOptions::default()).await?;
        Ok(Self(Api::namespaced(Client::try_from(config)?, NAMESPACE)))
    }

    pub(super) fn api(&self) -> &Api<Lease> {
        &self.0
    }

    /// Creates a Lease with a holder, as the first candidate of client-go does.
    pub(super) async fn create(&self, name: &str) -> Result<Lease> {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let lease = Lease { metadata, spec: Some(LeaseSpec::default()) };
        Ok(self.0.create(&PostParams::default(), &held_by("bench", lease)).await?)
    }

    pub(super) async fn delete(&self, name: &str) -> Result<()> {
        self.0.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Gives a Lease to a holder, or to nobody. Another client's write since the Lease was read is an error.
    pub(super) async fn update(&self, lease: Lease, holder: &str) -> Result<Lease> {
        let name = lease.metadata.name.clone().ok_or("a Lease without a name")?;
        Ok(self.0.replace(&name, &PostParams::default(), &held_by(holder, lease)).await?)
    }
}

fn held_by(holder: &str, mut lease: Lease) -> Lease {
    let now = MicroTime(Timestamp::now());
    let spec = lease.spec.get_or_insert_default();
    (spec.holder_identity, spec.lease_duration_seconds) = (Some(holder.to_owned()), Some(30));
    (spec.acquire_time, spec.renew_time) = (Some(now.clone()), Some(now));
    lease
}

/// Returns the holder of a Lease, empty if it is free.
pub(super) fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}
