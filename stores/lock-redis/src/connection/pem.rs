//! Certificates in PEM, and the files that hold them, which are renewed while the program runs.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use redis::{ClientTlsConfig, TlsCertificates};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

use crate::connection::link::within;
use lock_store::types::error::{LockError, Result};
use lock_store::types::system::sync::Mutex;

/// No certificate file is longer. A path may name a device that never ends.
const MOST_BYTES: u64 = 4 << 20;

/// How long a new connection waits for the files. A network file system may not answer at all.
const PATIENCE: Duration = Duration::from_secs(1);

/// A text in PEM.
#[derive(Clone)]
pub(crate) enum Pem {
    Given(Vec<u8>),
    /// A file of the URL, by the parameter that names it.
    File(&'static str, PathBuf),
}

impl Pem {
    /// Names a file, whose path is percent-encoded where a URL needs that.
    pub(crate) fn at(name: &'static str, path: &str) -> Result<Self> {
        let path = decode(path).ok_or_else(|| unreadable(name, "its path is not percent-encoded text"))?;
        Ok(Self::File(name, path.into()))
    }

    fn read(&self) -> Result<Vec<u8>> {
        let (name, path) = match self {
            Self::Given(pem) => return Ok(pem.clone()),
            Self::File(name, path) => (name, path),
        };
        let whole = || {
            // Opening a pipe waits for its writer, perhaps for ever.
            if !std::fs::metadata(path)?.is_file() {
                return Err(std::io::Error::other("it is not a file"));
            }
            let mut pem = Vec::new();
            File::open(path)?.take(MOST_BYTES).read_to_end(&mut pem)?;
            Ok(pem)
        };
        whole().map_err(|error| unreadable(name, &error.to_string()))
    }
}

fn unreadable(name: &str, why: &str) -> LockError {
    LockError::misconfigured(format!("the file that {name} names cannot be read: {why}; write its path"))
}

pub(crate) fn decode(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

/// Which authorities are trusted, and which certificate is presented. Files are read again for each connection,
/// because they are renewed while the program runs. All copies share what was read last.
#[derive(Clone, Default)]
pub(crate) struct Certificates {
    pub(crate) authority: Option<Pem>,
    pub(crate) client: Option<(Pem, Pem)>,
    read: Arc<Mutex<LastRead>>,
}

#[derive(Default)]
struct LastRead {
    /// The last certificates that could be used.
    good: Option<TlsCertificates>,
    /// Why the files could not be used the last time, if they could not.
    fault: Option<LockError>,
    /// Whether that is still to be logged.
    untold: bool,
    /// Changes when the thread that reads the files has ended, and closes with it.
    reading: Option<watch::Receiver<()>>,
}

impl Certificates {
    /// Reads everything and checks that it can be used.
    pub(crate) fn check(&self) -> Result<()> {
        let read = self.read_now()?;
        self.read.lock().good = Some(read);
        Ok(())
    }

    fn read_now(&self) -> Result<TlsCertificates> {
        let root_cert = self.authority.as_ref().map(Pem::read).transpose()?;
        let client_tls = match &self.client {
            Some((cert, key)) => Some(ClientTlsConfig { client_cert: cert.read()?, client_key: key.read()? }),
            None => None,
        };
        let read = TlsCertificates { client_tls, root_cert };
        verify(&read)?;
        Ok(read)
    }

    /// Returns the certificates as the files have them now, or as they had them last if they cannot be used.
    pub(crate) async fn current(&self) -> Result<TlsCertificates> {
        let pems = self.authority.iter().chain(self.client.iter().flat_map(|(cert, key)| [cert, key]));
        if pems.into_iter().any(|pem| matches!(pem, Pem::File(..))) {
            let mut reading = self.begin_to_read();
            if within(PATIENCE, reading.changed()).await.is_none() {
                self.note(Err(LockError::not_executed(format!(
                    "the files of the certificates could not be read within {PATIENCE:?}",
                ))));
            }
        }
        let mut read = self.read.lock();
        let fault = || LockError::not_executed("the certificates were not read");
        let Some(good) = read.good.clone() else { return Err(read.fault.clone().unwrap_or_else(fault)) };
        let untold = std::mem::take(&mut read.untold);
        if let Some(error) = read.fault.clone().filter(|_| untold) {
            drop(read);
            tracing::warn!(
                target: "lock_core",
                %error,
                "the files of the certificates cannot be used, so those that were read before stay in use; the files are \
                 read again for the next connection",
            );
        }
        Ok(good)
    }

    /// Has a thread of its own read the files, unless one does so already: a file may never answer.
    fn begin_to_read(&self) -> watch::Receiver<()> {
        let mut last = self.read.lock();
        if let Some(reading) = last.reading.as_ref().filter(|reading| reading.has_changed().is_ok()) {
            return reading.clone();
        }
        let (ended, reading) = watch::channel(());
        last.reading = Some(reading.clone());
        drop(last);
        let this = self.clone();
        let read = move || {
            this.note(this.read_now());
            drop(ended);
        };
        if let Err(error) = std::thread::Builder::new().name("lock-certificates".to_owned()).spawn(read) {
            self.note(Err(LockError::not_executed("no thread can be started").with_source(error)));
        }
        reading
    }

    /// Keeps what was read, or what was read before.
    fn note(&self, read: Result<TlsCertificates>) {
        let mut last = self.read.lock();
        match read {
            Ok(read) => (last.good, last.fault, last.untold) = (Some(read), None, false),
            Err(error) => last.untold |= last.fault.replace(error).is_none(),
        }
    }
}

/// Refuses what holds no certificate, and a key that belongs to another certificate. Its errors quote nothing.
fn verify(TlsCertificates { client_tls, root_cert }: &TlsCertificates) -> Result<()> {
    let none = || {
        LockError::misconfigured(
            "there is no certificate in the authority or in the client certificate; give them as PEM",
        )
    };
    let unusable = || {
        LockError::misconfigured("the certificates or the key cannot be read; give them as PEM, the key unencrypted")
    };
    let all = |pem: &[u8]| -> Result<Vec<CertificateDer<'static>>> {
        let all: Vec<_> =
            CertificateDer::pem_slice_iter(pem).collect::<std::result::Result<_, _>>().map_err(|_| unusable())?;
        if all.is_empty() { Err(none()) } else { Ok(all) }
    };
    if let Some(pem) = root_cert {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in all(pem)? {
            roots.add(certificate).map_err(|_| unusable())?;
        }
    }
    if let Some(client) = client_tls {
        let chain = all(&client.client_cert)?;
        let key = PrivateKeyDer::from_pem_slice(&client.client_key).map_err(|_| unusable())?;
        let provider = CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()));
        CertifiedKey::from_der(chain, key, &provider).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => LockError::misconfigured(
                "the key of the client certificate belongs to another certificate; name the key that it was issued for",
            ),
            _ => unusable(),
        })?;
    }
    Ok(())
}

/// Hides the key, and the paths, which a password may be part of.
impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}
