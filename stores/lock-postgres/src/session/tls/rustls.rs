//! TLS by rustls: the certificate is always verified, against the platform's roots and `SSL_CERT_FILE`, or those of a file.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as Encrypted;

use crate::session::tls::binding;
use crate::url::{Authorities, Tls};

/// Connects to servers that prove their name.
pub(super) struct Verified(Arc<ClientConfig>);

impl Verified {
    /// Reads the files that are named: a connection is made with what they contain now, since certificates are renewed in place.
    pub(super) fn new(tls: &Tls) -> io::Result<Self> {
        let roots = Arc::new(roots(tls.authorities.as_ref())?);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
        let verifier = verifier.map_err(io::Error::other)?;
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(io::Error::other)?;
        let config = match tls.any_name {
            true => config.dangerous().with_custom_certificate_verifier(Arc::new(AnyName(verifier))),
            false => config.with_webpki_verifier(verifier),
        };
        let config = match (&tls.certificate, &tls.key) {
            (Some(certificate), Some(key)) => {
                let named = |file, error: &dyn std::fmt::Display| {
                    cannot_be_read("the certificate of this client in", file, error)
                };
                let chain = certificates(certificate).map_err(|error| named(certificate, &error))?;
                let secret = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| cannot_be_read("the key of this client in", key, &error))?;
                config.with_client_auth_cert(chain, secret).map_err(|error| named(certificate, &error))?
            }
            _ => config.with_no_client_auth(),
        };
        Ok(Self(Arc::new(config)))
    }
}

/// Returns the authorities in a file (PEM) and no others, or those of this machine.
fn roots(authorities: Option<&Authorities>) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let Some(Authorities::File(file)) = authorities else {
        // Some of a platform's own cannot be read, and are not needed for that.
        let _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return match roots.is_empty() {
            true => Err(io::Error::other("this machine has no authorities; name a file of them by ?ca=FILE")),
            false => Ok(roots),
        };
    };
    let named = |error: &dyn std::fmt::Display| cannot_be_read("the authorities in", file, error);
    for certificate in certificates(file).map_err(|error| named(&error))? {
        roots.add(certificate).map_err(|error| named(&error))?;
    }
    Ok(roots)
}

/// Reads the certificates in a file, which has one at least.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(|error| error.to_string())?;
    if found.is_empty() { Err("there is no certificate in it".to_owned()) } else { Ok(found) }
}

fn cannot_be_read(what: &str, file: &Path, error: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!("{what} {} cannot be read: {error}", file.display()))
}

/// Returns what to do about an error of TLS, and its words. `None` if it is none.
pub(super) fn advice(error: &(dyn std::error::Error + 'static)) -> Option<(String, &'static str)> {
    let broken = error.source()?.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref::<Error>()?;
    let advice = match broken {
        Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "have the certificate of the server renewed; if it is valid, the clock of this machine is wrong"
        }
        Error::InvalidCertificate(CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }) => {
            "the clock of this machine is behind, or the certificate of the server was issued with a clock that is ahead"
        }
        // The second is that of an authority of the same name, with another key.
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "name the authority that signed it by ?ca=FILE, or install that on this machine"
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => {
            "name the host for which its certificate is; with an authority of your own sslmode=verify-ca accepts any name"
        }
        Error::InvalidCertificate(
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. },
        ) => "this certificate is not one of a server (extendedKeyUsage has no serverAuth); have another issued",
        // A certificate that signs itself is both.
        Error::InvalidCertificate(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "this is the certificate of an authority; have that issue one for the server (basicConstraints CA:FALSE)"
        }
        Error::InvalidCertificate(_) => "have another certificate issued for the server",
        Error::AlertReceived(_) => {
            "the server ended the handshake: its log says why, and sslcert=FILE&sslkey=FILE name a certificate of this client"
        }
        _ => return None,
    };
    Some((broken.to_string(), advice))
}

/// Checks everything but the name, as `sslmode=verify-ca` wants it: the authority signs for the servers of one owner only.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The name is checked last, so an error about it means that everything before is right.
        match self.0.verify_server_cert(certificate, others, name, ocsp, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            known => known,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Verified {
    type Stream = Stream<S>;
    type TlsConnect = Server;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Server, Self::Error> {
        Ok(Server {
            connector: TlsConnector::from(Arc::clone(&self.0)),
            name: ServerName::try_from(domain.to_owned())?,
        })
    }
}

/// One server to connect to.
pub(super) struct Server {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Server {
    type Stream = Stream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move { Ok(Stream::Encrypted(Box::new(self.connector.connect(self.name, stream).await?))) })
    }
}

/// Encrypts nothing: for bytes that leave this process nowhere.
pub(super) struct Plain;

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Plain {
    type Stream = Stream<S>;
    type Error = io::Error;
    type Future = std::future::Ready<io::Result<Stream<S>>>;

    fn connect(self, stream: S) -> Self::Future {
        std::future::ready(Ok(Stream::Plain(stream)))
    }
}

/// A connection after the two sides have agreed on TLS.
pub(super) enum Stream<S> {
    Encrypted(Box<Encrypted<S>>),
    Plain(S),
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        let Stream::Encrypted(encrypted) = self else { return ChannelBinding::none() };
        let shown = encrypted.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let bound = shown.and_then(|certificate| binding::end_point(certificate));
        bound.map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Encrypted(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Stream::Encrypted(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Encrypted(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Encrypted(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
