//! `gpuprobe serve`, as it is typed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use super::target::TargetArgs;
use crate::live::{self, AdvancedOptions, ServeConfig, TensorMode, TraceConfig};
use crate::serve::listen::check_access;
use crate::serve::{Listen, tls};
use gpuprobe_cuda::Modes;
use gpuprobe_report::metrics::MetricLimits;

/// The state is taken in this often where nobody asks for it.
const TAKEN_IN_EVERY: Duration = Duration::from_secs(10);
/// Bytes of a token at least: shorter ones can be guessed.
const LEAST_TOKEN: usize = 16;

#[derive(Debug, Args)]
#[command(next_help_heading = "Serving")]
pub(in crate::cli) struct ServeArgs {
    /// Listen on ADDRESS:PORT or `unix:/PATH`, a Unix socket.
    ///
    /// An address that other hosts can reach needs --tls-cert and --tls-key, and --token-file or
    /// --client-ca.
    #[arg(long, value_name = "WHERE", default_value = "127.0.0.1:9477")]
    listen: Listen,

    /// Serve TLS with this chain of certificates, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The private key of --tls-cert, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Accept only clients with a certificate of these authorities, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    client_ca: Option<PathBuf>,

    /// Accept only requests with the bearer token in FILE, except to /healthz.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Let whoever can reach --listen read everything.
    #[arg(long)]
    insecure_listen: bool,

    /// Serve at most N series; further processes are summed as `other`.
    #[arg(long, value_name = "N", default_value_t = MetricLimits::default().series)]
    max_series: usize,

    /// Serve PyTorch's memory in a process, for its viewer, with addresses: /api/v1/snapshot?pid=N.
    #[arg(long)]
    snapshots: bool,

    #[command(flatten)]
    modes: Modes,

    #[command(flatten)]
    target: TargetArgs,

    #[command(flatten, next_help_heading = "Advanced")]
    advanced: AdvancedOptions,
}

impl ServeArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        live::run(&self.into_config()?)
    }

    fn serve(&self) -> Result<ServeConfig> {
        let has_proof = self.token_file.is_some() || self.client_ca.is_some();
        let has_tls = self.tls_cert.is_some();
        check_access(&self.listen, has_tls, has_proof, self.insecure_listen)?;
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                let authorities = self.client_ca.as_deref().map(text_of).transpose()?;
                let (certificate, key) = (text_of(certificate)?, text_of(key)?);
                Some(tls::acceptor(&certificate, &key, authorities.as_deref())?)
            }
            _ => None,
        };
        Ok(ServeConfig {
            listen: self.listen.clone(),
            tls,
            token: self.token_file.as_deref().map(token_in).transpose()?,
            snapshots: self.snapshots,
            limits: MetricLimits {
                series: self.max_series,
                ..MetricLimits::default()
            },
        })
    }

    fn into_config(mut self) -> Result<TraceConfig> {
        self.target.tensors.get_or_insert(TensorMode::Census);
        let serve = self.serve()?;
        let modes = self.modes.or(Modes {
            memleak: true,
            cudatrace: true,
            bandwidth_util: true,
            ..Modes::default()
        });
        Ok(TraceConfig {
            serve: Some(serve),
            ..self.target.config(self.advanced, modes, TAKEN_IN_EVERY)
        })
    }
}

fn text_of(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The token in a file: one line.
fn token_in(path: &Path) -> Result<String> {
    let token = text_of(path)?.trim().to_owned();
    ensure!(
        token.len() >= LEAST_TOKEN,
        "{}: the token is shorter than {LEAST_TOKEN} bytes; `openssl rand -hex 32` makes one",
        path.display()
    );
    if let Some(wrong) = token.chars().find(|c| !c.is_ascii_graphic()) {
        bail!("{}: a token cannot contain {wrong:?}", path.display());
    }
    Ok(token)
}
