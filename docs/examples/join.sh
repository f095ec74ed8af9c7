#!/bin/sh
# Makes a machine of the Spotpool team-a/training a node of a kubeadm cluster (docs/spot-pools.md).
# The image has the GPU driver, a container runtime, kubelet and kubeadm.
# Put your values for API_SERVER, TOKEN and HASH: `kubeadm token create --print-join-command` prints them.
# Each launch reads the Secret again, so replace the token there before it expires.
set -eu

metadata=http://169.254.169.254/latest
session=$(curl -sSf -X PUT -H "X-aws-ec2-metadata-token-ttl-seconds: 300" "$metadata/api/token")
about() { curl -sSf -H "X-aws-ec2-metadata-token: $session" "$metadata/meta-data/$1"; }

zone=$(about placement/availability-zone)
labels="node.kubernetes.io/instance-type=$(about instance-type)"
labels="$labels,topology.kubernetes.io/zone=$zone,topology.kubernetes.io/region=$(about placement/region)"
labels="$labels,headroom.dev/capacity-type=$(about instance-life-cycle)" # spot or on-demand

config=$(mktemp)
cat >"$config" <<END
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken: {apiServerEndpoint: "API_SERVER:6443", token: TOKEN, caCertHashes: ["sha256:HASH"]}
nodeRegistration:
  taints: [{key: headroom.dev/spotpool, value: team-a, effect: NoSchedule}]
  kubeletExtraArgs:
  - {name: node-labels, value: "$labels"}
  - {name: provider-id, value: "aws:///$zone/$(about instance-id)"}
END
kubeadm join --config "$config"
