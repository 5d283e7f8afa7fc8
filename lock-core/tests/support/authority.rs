//! Certificates of a test's own.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// An authority of one test.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Its name differs from that of the certificates it signs, which would otherwise look
        // self-signed.
        params.distinguished_name.push(DnType::CommonName, "an authority of this test");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for a name or an address, and its key.
    pub(crate) fn issue(&self, name: &str) -> (String, String) {
        self.issue_with(&[name], |_| {})
    }

    /// A certificate for some names that differs from the usual one, and its key.
    pub(crate) fn issue_with(&self, names: &[&str], differs: impl FnOnce(&mut CertificateParams)) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        differs(&mut params);
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}
