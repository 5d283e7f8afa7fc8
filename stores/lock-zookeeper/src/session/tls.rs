//! TLS: a server is used only if an authority has signed its certificate, for the name of the URL.

use std::path::Path;
use std::sync::Arc;
use std::{fmt, fs, io};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lock_store::{LockError, Result};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CertificateError, ClientConfig, Error, RootCertStore};
use tokio_rustls::TlsConnector;
use zookeeper_client::TlsOptions;

use crate::url::{Files, Settings};

/// The certificates, as the files had them when they were read.
pub(crate) struct Tls {
    pub(crate) connector: TlsConnector,
    /// The same for the client.
    pub(crate) options: TlsOptions,
}

/// Reads the files of the URL, on a thread of its own: a network file system may not answer. `None` for a URL without TLS.
pub(crate) async fn read(settings: &Settings) -> Result<Option<Tls>> {
    let Some(files) = settings.tls.clone() else { return Ok(None) };
    for host in settings.hosts.split(',') {
        // The client panics at such a name.
        name(host).map_err(|_| LockError::misconfigured("the URL has a host that no certificate can be for"))?;
    }
    let failed = |error| LockError::not_executed("the certificates were not read").with_source(error);
    tokio::task::spawn_blocking(move || Tls::read(&files)).await.map_err(failed)?.map(Some)
}

impl Tls {
    fn read(files: &Files) -> Result<Self> {
        // The client takes the provider of the process. Where two are compiled in, there is none by default.
        if CryptoProvider::get_default().is_none() {
            let _ = aws_lc_rs::default_provider().install_default();
        }
        let text = |name: &str, file: &Path| fs::read_to_string(file).map_err(|error| unusable(name, &error));
        let authorities = files.ca.as_ref().map_or_else(|| Ok(of_machine()), |file| text("ca", file))?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(authorities.as_bytes()).flatten());
        let config = ClientConfig::builder().with_root_certificates(roots);
        let mut options = TlsOptions::new().with_pem_ca(&authorities).map_err(|error| unusable("ca", &error))?;
        let config = match &files.client {
            None => config.with_no_client_auth(),
            Some((cert, key)) => {
                let (cert, key) = (text("cert", cert)?, text("cert_key", key)?);
                options = options.with_pem_identity(&cert, &key).map_err(|error| unusable("cert_key", &error))?;
                let chain = CertificateDer::pem_slice_iter(cert.as_bytes()).flatten().collect();
                let key =
                    PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| unusable("cert_key", &error))?;
                config.with_client_auth_cert(chain, key).map_err(|error| unusable("cert", &error))?
            }
        };
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), options })
    }
}

/// Returns the name in `name:port`.
pub(crate) fn name(host: &str) -> io::Result<ServerName<'static>> {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    ServerName::try_from(name.to_owned()).map_err(io::Error::other)
}

/// Returns the authorities of this machine. Those that cannot be read are not needed.
fn of_machine() -> String {
    let pem = |one| format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(one));
    rustls_native_certs::load_native_certs().certs.iter().map(pem).collect()
}

fn unusable(name: &str, why: &dyn fmt::Display) -> LockError {
    LockError::misconfigured(format!("the certificates cannot be used: {why}; name a PEM file by ?{name}=FILE"))
}

/// Says why a server is not used, and what to do about it.
pub(crate) fn refused(host: &str, error: io::Error) -> LockError {
    let reason = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let advice = match reason {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature)) => {
            "name the authority that signed its certificate by ?ca=FILE, or install that on this machine"
        }
        Some(Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => "write the host name that its certificate is for",
        Some(Error::InvalidCertificate(_)) => {
            "have another certificate issued for it, and check the clock of this machine"
        }
        Some(Error::AlertReceived(_)) => "its log says why; ?cert=FILE&cert_key=FILE name a certificate of this client",
        _ => "check that the port is its secureClientPort, and read its log; for another port write zookeeper://",
    };
    let text = format!("no TLS with ZooKeeper at {host}: {error}; {advice}");
    // A connection that ends without a reason may be that of a server which stops.
    let known = if reason.is_some() { LockError::misconfigured(text) } else { LockError::not_executed(text) };
    known.with_source(error)
}
