//! Certificates, of which a URL names the files.

#[cfg(feature = "tls")]
use crate::connection::pem::Pem;
use crate::connection::settings::Settings;
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
mod tests {
    use super::take;
    use crate::connection::pem::decode;
    use crate::connection::settings::Settings;
    use lock_store::types::url::StoreUrl;

    #[test]
    fn files_are_named_by_percent_encoded_paths() {
        for (text, path) in [("/a/b.pem", Some("/a/b.pem")), ("%2Fa%20b%26%25", Some("/a b&%")), ("%C3%BC", Some("ü"))]
        {
            assert_eq!(decode(text).as_deref(), path);
        }
        for wrong in ["%", "%2", "%zz", "%ff", "a%é1"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_cannot_be_used_says_what_to_write_and_repeats_nothing() {
        for (url, says) in [
            ("redis://h?ca=s3cret", "write rediss://"),
            ("rediss://h?ca=s3cret", "the file that ca names cannot be read"),
            ("rediss://h?cert=s3cret", "name both files"),
            ("rediss://h?cert_key=s3cret", "name both files"),
            ("rediss://h?cert=s3cret&cert_key=s3cret", "the file that cert names cannot be read"),
            ("rediss://h?ca=%s3", "not percent-encoded"),
            ("rediss://h?ca=s3cret&ca=s3cret", "more than one ca"),
        ] {
            let error = take(&mut StoreUrl::read(url), &mut Settings::default()).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("s3"), "{url}: {error}");
        }
        let (mut url, mut settings) = (StoreUrl::read("redis://h/2?acks=1"), Settings::default());
        assert!(take(&mut url, &mut settings).is_ok() && url.to_text() == "redis://h/2?acks=1");
        assert!(settings.certificates.is_none());
    }
}
