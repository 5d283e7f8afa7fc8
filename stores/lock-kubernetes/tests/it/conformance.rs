//! Runs the conformance suite on a real API server.

use lock_kubernetes::Kubernetes;

use crate::servers::{ApiServer, is_installed};

fn store() -> impl Fn() -> Kubernetes {
    let server = ApiServer::shared().expect("it is installed");
    let place = server.namespace();
    move || Kubernetes::new(&place.url()).unwrap()
}

lock_testing::conformance_tests!(store, if is_installed);
