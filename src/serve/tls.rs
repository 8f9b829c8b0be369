//! TLS, with or without certificates of clients.

use std::sync::Arc;

use anyhow::{Context, Result};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// The acceptor of TLS connections: of this chain of certificates, the server's own first, its private key, and the
/// authorities of clients, if these need a certificate; all PEM.
///
/// # Errors
/// Returns an error if a certificate or the key is not one, or they do not belong together.
pub(crate) fn acceptor(
    certificate: &str,
    key: &str,
    client_authorities: Option<&str>,
) -> Result<TlsAcceptor> {
    let chain = certificates(certificate).context("--tls-cert")?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
    let key = key.context("--tls-key has no private key")?;
    let provider = Arc::new(ring::default_provider());
    let versions = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let server = versions.with_safe_default_protocol_versions()?;
    let server = match client_authorities {
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

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_slice_iter(pem.as_bytes());
    let all: Vec<_> = all.collect::<Result<_, _>>()?;
    anyhow::ensure!(!all.is_empty(), "there is no certificate in it");
    Ok(all)
}
