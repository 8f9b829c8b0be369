//! TLS, with or without certificates of clients.

use std::sync::Arc;

use anyhow::{Context, Result};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::TlsMaterial;

/// The acceptor of TLS connections.
///
/// # Errors
/// Returns an error if a certificate or the key is not one, or they do not belong together.
pub(super) fn acceptor(material: &TlsMaterial) -> Result<TlsAcceptor> {
    let chain = certificates(&material.certificate).context("--tls-cert")?;
    let key = PrivateKeyDer::from_pem_slice(material.key.as_bytes());
    let key = key.context("--tls-key has no private key")?;
    let provider = Arc::new(ring::default_provider());
    let versions = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let server = versions.with_safe_default_protocol_versions()?;
    let server = match &material.client_authorities {
        None => server.with_no_client_auth(),
        Some(authorities) => {
            let mut roots = RootCertStore::empty();
            for one in certificates(authorities).context("--client-ca")? {
                roots.add(one).context("--client-ca")?;
            }
            let roots = Arc::new(roots);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            server.with_client_cert_verifier(verifier.build().context("--client-ca")?)
        }
    };
    let config = server.with_single_cert(chain, key);
    let mut config = config.context("--tls-cert and --tls-key do not belong together")?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

pub(super) fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_slice_iter(pem.as_bytes());
    let all: Vec<_> = all.collect::<Result<_, _>>()?;
    anyhow::ensure!(!all.is_empty(), "there is no certificate in it");
    Ok(all)
}

/// Checks the certificates and the key.
///
/// # Errors
/// As for the acceptor that they are for.
pub(crate) fn check(material: &TlsMaterial) -> Result<()> {
    acceptor(material).map(drop)
}
