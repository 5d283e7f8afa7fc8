//! How a server is reached, beyond its URL.

use std::sync::Arc;
use std::time::Duration;

use crate::connection::credentials::Provider;
#[cfg(feature = "tls")]
use crate::connection::pem::Certificates;

/// How to reach a server.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) connect_within: Duration,
    /// As `CLIENT LIST` shows it.
    pub(crate) client_name: Arc<str>,
    pub(crate) provider: Option<Arc<Provider>>,
    #[cfg(feature = "tls")]
    pub(crate) certificates: Option<Certificates>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connect_within: Duration::from_secs(5),
            client_name: format!("lock-core:{}", std::process::id()).into(),
            provider: None,
            #[cfg(feature = "tls")]
            certificates: None,
        }
    }
}

impl Settings {
    /// Returns the settings for servers of another kind, with credentials of their own, and perhaps without TLS.
    pub(crate) fn of_others(&self, tls: bool) -> Self {
        // Without the feature, there are certificates neither to use nor to leave out.
        #[cfg(not(feature = "tls"))]
        let _ = tls;
        Self {
            provider: None,
            #[cfg(feature = "tls")]
            certificates: self.certificates.clone().filter(|_| tls),
            ..self.clone()
        }
    }
}
