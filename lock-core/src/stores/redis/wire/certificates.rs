//! Certificates, of which a URL names the files.

use crate::stores::redis::wire::settings::Settings;
use crate::types::error::{LockError, Result};
use crate::types::url::StoreUrl;

/// Takes `ca`, `cert` and `cert_key` out of the query of a URL, and reads the files that they name. Those of the builder
/// are checked too.
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
    check(settings)?;
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
    let certificates = settings.certificates();
    if let Some(ca) = ca {
        certificates.root_cert = Some(read("ca", &ca)?);
    }
    match client {
        (None, None) => {}
        (Some(cert), Some(key)) => {
            let (client_cert, client_key) = (read("cert", &cert)?, read("cert_key", &key)?);
            certificates.client_tls = Some(redis::ClientTlsConfig { client_cert, client_key });
        }
        _ => {
            return Err(LockError::misconfigured(
                "a client certificate is proven by its key; name both files, with cert and cert_key",
            ));
        }
    }
    Ok(())
}

/// Reads a file, whose path is percent-encoded where a URL needs that.
#[cfg(feature = "tls")]
fn read(name: &str, path: &str) -> Result<Vec<u8>> {
    let unreadable = |why: &str| {
        LockError::misconfigured(format!("the file that {name} names cannot be read: {why}; write its path"))
    };
    let path = decode(path).ok_or_else(|| unreadable("its path is not percent-encoded text"))?;
    std::fs::read(path).map_err(|error| unreadable(&error.to_string()))
}

#[cfg(feature = "tls")]
fn decode(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

/// Refuses what holds no certificate.
#[cfg(feature = "tls")]
fn check(settings: &Settings) -> Result<()> {
    const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";
    let Some(redis::TlsCertificates { client_tls, root_cert }) = &settings.certificates else { return Ok(()) };
    let ours = client_tls.as_ref().map(|client| &client.client_cert);
    if root_cert.iter().chain(ours).all(|pem| pem.windows(BEGIN.len()).any(|line| line == BEGIN)) {
        return Ok(());
    }
    Err(LockError::misconfigured(
        "there is no certificate in the authority or in the client certificate; give them as PEM",
    ))
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::{decode, take};
    use crate::stores::redis::wire::settings::Settings;
    use crate::types::url::StoreUrl;

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
