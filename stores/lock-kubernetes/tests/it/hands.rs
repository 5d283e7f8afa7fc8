//! A Lease that a person edits or deletes by hand, and one of another client.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use lock_core::{LockBackend as _, LockErrorKind, LockKey, LossReason, ReleaseOutcome};
use lock_kubernetes::Kubernetes;
use lock_store::{Freed, Inspector as _, Revocation, RevokeFrom};
use lock_testing::{Stopwatch, limit};
use serde_json::{Value, json};

use crate::servers::{ApiServer, Namespace};
use crate::support::{SECOND, locks_for};

/// Leases as `kubectl` sees them.
async fn leases(place: &Namespace<'_>) -> Api<Lease> {
    let file = Kubeconfig::read_from(place.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    Api::namespaced(Client::try_from(config).unwrap(), &place.name)
}

async fn patch(leases: &Api<Lease>, name: &str, change: Value) {
    leases.patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn a_holder_whose_lease_is_deleted_or_given_away_by_hand_learns_of_it_at_once() {
    let Some(server) = ApiServer::shared() else { return };
    let place = server.namespace();
    let (leases, locks) = (leases(&place).await, locks_for(&place.url(), 15 * SECOND));
    for change in [
        None,
        Some(json!({"spec": {"holderIdentity": "somebody-else"}})),
        Some(json!({"spec": {"holderIdentity": null}})),
    ] {
        let guard = locks.lock("edited").await.unwrap();
        // A lease is verified only after its first renewal. The next one comes long after the watch has told.
        tokio::time::sleep(6 * SECOND).await;
        let watch = Stopwatch::start();
        match &change {
            None => drop(leases.delete("edited", &DeleteParams::default()).await.unwrap()),
            Some(change) => patch(&leases, "edited", change.clone()).await,
        }
        assert_eq!(guard.lost().await, LossReason::Stolen, "{change:?}");
        watch.assert_within(2 * SECOND, "the watch tells the holder");
        let released = guard.release().await;
        assert_eq!(released, Ok(ReleaseOutcome::AlreadyLost(LossReason::Stolen)), "{change:?}");
        if change.is_none() {
            assert!(
                leases.get_opt("edited").await.unwrap().is_none(),
                "neither a renewal nor a release makes it again"
            );
        }
        let _ = leases.delete("edited", &DeleteParams::default()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn labels_and_annotations_of_others_cost_no_holder_its_lock_and_delay_no_take_over() {
    let Some(server) = ApiServer::shared() else { return };
    let place = server.namespace();
    let (leases, ttl) = (leases(&place).await, 3 * SECOND);
    let (one, two) = (locks_for(&place.url(), ttl), locks_for(&place.url(), ttl));
    let guard = one.lock("labelled").await.unwrap();
    for number in 0..8 {
        patch(&leases, "labelled", json!({"metadata": {"labels": {"team": format!("t{number}")}}})).await;
        tokio::time::sleep(SECOND / 2).await;
    }
    assert_eq!(guard.ensure_held(), Ok(()), "renewals go on");
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    let fixed = one.lock("labelled").with_renew(lock_core::Renew::Off).await.unwrap();
    let watch = Stopwatch::start();
    let labels = async {
        for number in 0.. {
            patch(&leases, "labelled", json!({"metadata": {"labels": {"team": format!("n{number}")}}})).await;
            tokio::time::sleep(SECOND / 2).await;
        }
    };
    tokio::select! {
        next = two.lock("labelled").acquire() => drop(next.unwrap()),
        () = labels => {}
    }
    watch.assert_within(ttl + 2 * SECOND, "only what the holder writes extends its lease");
    drop(fixed);
}

/// The record of a leader of client-go, as `kubectl` shows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn a_leader_of_another_library_is_seen_waited_for_and_taken_over_when_it_is_dead() {
    let Some(server) = ApiServer::shared() else { return };
    let place = server.namespace();
    let leases = leases(&place).await;
    let store = Kubernetes::new(&place.url()).unwrap();
    let (key, identity) = (LockKey::new("controller").unwrap(), "pod-1_0c1e9a0e-7d4b-4d0a-9d43-0a4b3b7ad0aa");
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"name": "controller"},
        "spec": {"holderIdentity": identity, "leaseDurationSeconds": 2, "leaseTransitions": 4,
            "acquireTime": "2020-01-01T00:00:00.000000Z", "renewTime": "2020-01-01T00:00:00.000000Z"},
    }))
    .unwrap();
    leases.create(&PostParams::default(), &lease).await.unwrap();
    let holder = store.holder(&key).await.unwrap().expect("its times are never compared with a clock");
    assert_eq!((&*holder.info.unwrap().host, holder.owner), (identity, None));
    let locks = locks_for(&place.url(), 9 * SECOND);
    let busy = locks.lock("controller").without_waiting().await.unwrap_err();
    assert_eq!(busy.kind(), LockErrorKind::Busy);
    assert!(busy.to_string().contains(identity), "{busy}");
    let watch = Stopwatch::start();
    let guard = locks.lock("controller").await.unwrap();
    assert!(watch.elapsed() > SECOND, "it was not seen unchanged for its time: {:?}", watch.elapsed());
    let spec = leases.get("controller").await.unwrap().spec.unwrap();
    assert_eq!((spec.lease_transitions, spec.lease_duration_seconds), (Some(5), Some(9)), "as client-go counts");
    assert_ne!(spec.holder_identity.as_deref(), Some(identity));
    guard.release().await.unwrap();
    let spec = leases.get("controller").await.unwrap().spec.unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some(""), Some(5)), "as client-go releases");
    // An operator takes it away from a leader that lives.
    patch(&leases, "controller", json!({"spec": {"holderIdentity": identity, "leaseDurationSeconds": 600}})).await;
    let from = |identity: &str| Revocation::new(RevokeFrom::Foreign(identity.as_bytes().to_vec()), "ana", "test");
    assert_eq!(store.revoke(&key, &from("pod-2")).await, Ok(Freed::NotHeld));
    assert_eq!(store.revoke(&key, &from(identity)).await, Ok(Freed::Released));
    assert!(store.holder(&key).await.unwrap().is_none());
}
