//! Certificates, of which a URL names the files.

use crate::connection::connect::Settings;
#[cfg(feature = "tls")]
use crate::connection::pem::Pem;
use lock_store::types::error::{LockError, Result};
use lock_store::types::url::StoreUrl;

/// Takes `ca`, `cert` and `cert_key` out of the query of a URL, and reads the files that they name. The certificates of
/// the builder are checked too.
///
/// No error repeats a part of the URL.
pub(crate) fn take(url: &mut StoreUrl, settings: &mut Settings) -> Result<()> {
    let (ca, cert, key) = (url.take("ca")?, url.take("cert")?, url.take("cert_key")?);
    if ca.is_some() || cert.is_some() || key.is_some() {
        if !url.scheme().starts_with("rediss") {
            return Err(LockError::misconfigured(
                "ca, cert and cert_key are for TLS, and the URL is not of TLS; write rediss://, or leave them out",
            ));
        }
        set(settings, ca, (cert, key))?;
    }
    #[cfg(feature = "tls")]
    if let Some(certificates) = &settings.certificates {
        certificates.check()?;
    }
    Ok(())
}

#[cfg(not(feature = "tls"))]
fn set(_: &mut Settings, _: Option<String>, _: (Option<String>, Option<String>)) -> Result<()> {
    Err(LockError::misconfigured(
        "rediss:// needs TLS, which is not compiled in; enable the cargo feature `tls` of lock-core",
    ))
}

#[cfg(feature = "tls")]
fn set(settings: &mut Settings, ca: Option<String>, client: (Option<String>, Option<String>)) -> Result<()> {
    let certificates = settings.certificates.get_or_insert_default();
    if let Some(ca) = ca {
        certificates.authority = Some(Pem::at("ca", &ca)?);
    }
    match client {
        (None, None) => {}
        (Some(cert), Some(key)) => certificates.client = Some((Pem::at("cert", &cert)?, Pem::at("cert_key", &key)?)),
        _ => {
            return Err(LockError::misconfigured(
                "a client certificate is proven by its key; name both files, with cert and cert_key",
            ));
        }
    }
    Ok(())
}

#[cfg(all(test, feature = "tls"))]
#[path = "tests/certificates.rs"]
mod tests;
