//! Explains a failed handshake of TLS, and what to do about it.

use std::error::Error;

use redis::RedisError;
use rustls::{AlertDescription as Alert, CertificateError as Fault, Error as Tls};

/// Returns what to do about an error of TLS, if it is one.
pub(crate) fn advice(error: &RedisError) -> Option<&'static str> {
    if let Some(tls) = super::of_system(error).and_then(|error| error.get_ref()?.downcast_ref::<Tls>()) {
        return Some(about(tls));
    }
    // The client reads the authorities of the machine, also beside one that is given, and knows no host by such a name.
    let text = error.to_string();
    let names_a_file =
        error.source().is_some() && text.contains("native root") || text.contains("could not load certs");
    names_a_file.then_some(
        "the certificate authorities of this machine cannot be read: repair the file, or the one that SSL_CERT_FILE names",
    )
}

fn about(tls: &Tls) -> &'static str {
    match tls {
        Tls::InvalidCertificate(fault) => of_the_server(fault),
        Tls::AlertReceived(alert) => of_the_client(*alert),
        Tls::PeerIncompatible(_) => VERSIONS,
        Tls::InvalidMessage(_) => {
            "the server there does not speak TLS: write redis:// instead of rediss://, or correct the port of the URL"
        }
        Tls::NoCertificatesPresented => "the server has no certificate: configure tls-cert-file",
        _ => "check the TLS settings of both ends",
    }
}

const VERSIONS: &str = "both ends have no version of TLS or no cipher in common: this library speaks TLS 1.2 and 1.3; see \
                        tls-protocols and tls-ciphers of the server";

fn of_the_server(fault: &Fault) -> &'static str {
    match fault {
        Fault::Expired | Fault::ExpiredContext { .. } => {
            "renew the certificate of the server and have the server load it, or set the clock of this machine right"
        }
        Fault::NotValidYet | Fault::NotValidYetContext { .. } => {
            "set the clock of this machine right, or wait until the certificate of the server is valid"
        }
        Fault::UnknownIssuer => {
            "install the certificate authority that signed the server's certificate, or name its file with ca; a server \
             with an intermediate authority sends that one's certificate along"
        }
        Fault::NotValidForName | Fault::NotValidForNameContext { .. } => {
            "use the host name that the certificate is for"
        }
        Fault::InvalidPurpose | Fault::InvalidPurposeContext { .. } => {
            "the certificate of the server is not for servers: issue one for servers (serverAuth)"
        }
        Fault::Revoked => "the certificate of the server was revoked: issue another",
        Fault::BadSignature => {
            "install the certificate authority that signed the server's certificate, or name its file with ca; the one that \
             is trusted here has the same name and another key"
        }
        _ => {
            "the certificate of the server cannot be used here: issue another, of version 3 and with a usual algorithm"
        }
    }
}

/// The alerts of a server that refuses the client.
fn of_the_client(alert: Alert) -> &'static str {
    match alert {
        Alert::CertificateRequired | Alert::NoCertificate => {
            "the server asks for a certificate of the client: name its files with cert and cert_key"
        }
        Alert::HandshakeFailure => {
            "the server asks for a certificate of the client, or has no cipher in common with it: name its files with cert \
             and cert_key, or see tls-ciphers of the server"
        }
        Alert::UnknownCA => {
            "the server does not trust the client's certificate: name one with cert that an authority of the server \
             (tls-ca-cert-file) signed, or add its authority there"
        }
        Alert::CertificateExpired => {
            "the client's certificate has expired or is not valid yet: renew the files that cert and cert_key name"
        }
        Alert::CertificateRevoked => {
            "the client's certificate was revoked: replace the files that cert and cert_key name"
        }
        Alert::DecryptError => {
            "the server does not trust the client's certificate: the authority of the server (tls-ca-cert-file) may have the \
             same name and another key"
        }
        Alert::BadCertificate | Alert::CertificateUnknown | Alert::UnsupportedCertificate => {
            "the server cannot use the client's certificate: issue one for clients (clientAuth), and name it with cert"
        }
        Alert::AccessDenied => "the server does not let the client in with its certificate: see the server's log",
        Alert::ProtocolVersion | Alert::InsufficientSecurity => VERSIONS,
        Alert::UnrecognisedName => "the server knows no host of this name: correct the host of the URL",
        _ => "the server ended the handshake: see the server's log",
    }
}

#[cfg(test)]
#[path = "tests/tls.rs"]
mod tests;
