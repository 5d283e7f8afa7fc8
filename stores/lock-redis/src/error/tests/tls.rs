use std::io;

use lock_testing::limit;
use redis::RedisError;
use rustls::{AlertDescription as Alert, CertificateError as Fault, Error as Tls};

use crate::error::connecting;
use lock_store::types::error::LockErrorKind;

#[test]
#[limit]
fn each_reason_has_its_own_advice() {
    let alert = Tls::AlertReceived;
    let reasons = [
        (Fault::Expired.into(), "renew the certificate of the server"),
        (Fault::NotValidYet.into(), "the clock"),
        (Fault::UnknownIssuer.into(), "install the certificate authority"),
        (Fault::NotValidForName.into(), "the host name that the certificate is for"),
        (Fault::InvalidPurpose.into(), "serverAuth"),
        (Fault::Revoked.into(), "of the server was revoked"),
        (alert(Alert::CertificateRequired), "with cert and cert_key"),
        (alert(Alert::UnknownCA), "does not trust the client's certificate"),
        (alert(Alert::CertificateExpired), "the client's certificate has expired"),
        (alert(Alert::CertificateRevoked), "the client's certificate was revoked"),
        (alert(Alert::BadCertificate), "clientAuth"),
        (alert(Alert::ProtocolVersion), "version of TLS"),
    ];
    for (reason, advice) in reasons {
        let error = connecting("node", &RedisError::from(io::Error::other(Tls::clone(&reason))));
        let told = error.to_string();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{told}");
        assert!(told.contains(advice) && told.contains(&reason.to_string()), "{reason:?}: {told}");
    }
}
