//! TLS by rustls: the certificate is always verified, against the platform's roots and `SSL_CERT_FILE`, or those of a file.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as Encrypted;

/// Connects to servers that prove their name.
pub(super) struct Verified(Arc<ClientConfig>);

impl Verified {
    /// Trusts the authorities in a file (PEM) and no others, or those of this machine.
    pub(super) fn new(authorities: Option<&Path>) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        match authorities {
            // Some of a platform's own cannot be read, and are not needed for that.
            None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
            Some(file) => {
                let named = |error: &dyn std::fmt::Display| {
                    io::Error::other(format!("the authorities in {} cannot be read: {error}", file.display()))
                };
                let certificates = CertificateDer::pem_file_iter(file).map_err(|error| named(&error))?;
                for certificate in certificates {
                    let certificate = certificate.map_err(|error| named(&error))?;
                    roots.add(certificate).map_err(|error| named(&error))?;
                }
                if roots.is_empty() {
                    return Err(named(&"there is no certificate in it"));
                }
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(io::Error::other)?.with_root_certificates(roots).with_no_client_auth();
        Ok(Self(Arc::new(config)))
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
        ChannelBinding::none()
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
