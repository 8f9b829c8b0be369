//! Servers that `gpuprobe serve` pushes to, as they are typed.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{ArgGroup, Args};

use super::super::{heading, parse_duration};
use super::serve::text_of;
use crate::live;
use crate::serve::{PushSettings, PushUrl};

/// The servers.
const SERVERS: &str = "push_servers";

#[derive(Debug, Args)]
#[command(group(ArgGroup::new(SERVERS).args(["push_pyroscope", "otlp"]).multiple(true)))]
pub(super) struct PushArgs {
    /// Push profiles to the Pyroscope server at URL: memory and launches.
    #[arg(long, value_name = "URL", help_heading = heading::PUSHING)]
    push_pyroscope: Option<PushUrl>,

    /// Push metrics to the server at URL by OTLP/HTTP, in protobuf; `/v1/metrics` is appended.
    #[arg(long, value_name = "URL", help_heading = heading::PUSHING)]
    otlp: Option<PushUrl>,

    /// Push this often.
    #[arg(
        long,
        value_name = "TIME",
        value_parser = parse_duration,
        default_value = "15s",
        requires = SERVERS,
        help_heading = heading::PUSHING
    )]
    push_interval: Duration,

    /// Send the headers in FILE, too, one a line: `Authorization: Basic ...`, `X-Scope-OrgID: tenant`.
    #[arg(long, value_name = "FILE", requires = SERVERS, help_heading = heading::PUSHING)]
    push_headers: Option<PathBuf>,

    /// Trust servers of these authorities, PEM, instead of those that this host trusts.
    #[arg(long, value_name = "FILE", requires = SERVERS, help_heading = heading::PUSHING)]
    push_ca: Option<PathBuf>,

    /// Name of this host in what is pushed [default: its host name].
    #[arg(long, value_name = "NAME", requires = SERVERS, help_heading = heading::PUSHING)]
    push_host: Option<String>,
}

impl PushArgs {
    /// The settings of the pushing process, if anything is pushed.
    pub(super) fn settings(&self) -> Result<Option<PushSettings>> {
        if self.push_pyroscope.is_none() && self.otlp.is_none() {
            return Ok(None);
        }
        let headers = match &self.push_headers {
            Some(path) => {
                let headers = headers_in(&text_of(path)?);
                headers.with_context(|| path.display().to_string())?
            }
            None => Vec::new(),
        };
        let host = self.push_host.clone().or_else(live::host_name);
        let settings = PushSettings {
            pyroscope: self.push_pyroscope.clone(),
            otlp: self.otlp.clone(),
            interval: self.push_interval,
            headers,
            authorities: self.push_ca.as_deref().map(text_of).transpose()?,
            host: host.unwrap_or_default(),
            is_again: false,
            has_said: false,
        };
        // Before anything is traced.
        settings.check()?;
        Ok(Some(settings))
    }
}

/// Names and values of headers, one a line.
fn headers_in(text: &str) -> Result<Vec<(String, String)>> {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let header = |line: &str| {
        let (name, value) = line
            .split_once(':')
            .context("a line has no `Name: value`")?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    };
    lines.map(header).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_lines() {
        let text = "# for Grafana Cloud\nAuthorization: Basic YTpi\n\n X-Scope-OrgID:one \n";
        let headers = headers_in(text).unwrap();
        let expected = [("Authorization", "Basic YTpi"), ("X-Scope-OrgID", "one")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(headers, expected);
        assert!(headers_in("secret").is_err());
    }
}
