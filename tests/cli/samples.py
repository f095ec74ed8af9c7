"""The sample manifests of the five systems that Headroom grew from, as their texts print them."""

BUDGET = """\
apiVersion: budget.zxuhan.dev/v1alpha1
kind: GPUWorkloadBudget
metadata:
  name: team-a
  namespace: default
spec:
  selector:
    matchLabels:
      team: a
  quota:
    gpuHours: "100"
    windowHours: 24
  enforcement:
    action: AlertOnly
    gracePeriodSeconds: 60
"""

SPOTPOOL = """\
apiVersion: devops.jokerbai.com/v1
kind: Spotpool
metadata:
  name: spotpool-sample
spec:
  secretId: <your-secret-id>
  secretKey: <your-secret-key>
  region: ap-singapore
  availabilityZone: ap-singapore-2
  instanceType: GN7.2XLARGE32
  minimum: 2
  maximum: 2
  subnetId: DEFAULT
  vpcId: DEFAULT
  securityGroupIds:
  - sg-xxx
  imageId: img-xxx
  instanceChargeType: SPOTPAID
"""

ENVIRONMENT = """\
# For a node group named "gpu-node-1":
GPU_NODE_1_NAME=gpu-worker-1
GPU_NODE_1_GPU_COUNT=4
GPU_NODE_1_SCALE_UP_ENDPOINT=http://power-api/gpu-worker-1/start
GPU_NODE_1_SCALE_DOWN_ENDPOINT=http://power-api/gpu-worker-1/stop

# For additional nodes, use different prefixes:
GPU_NODE_2_NAME=gpu-worker-2
GPU_NODE_2_GPU_COUNT=8
GPU_NODE_2_SCALE_UP_ENDPOINT=http://power-api/gpu-worker-2/start
GPU_NODE_2_SCALE_DOWN_ENDPOINT=http://power-api/gpu-worker-2/stop
"""

VALUES = """\
nodeGroups:
  - name: gpu-worker-1
    gpuCount: 4
    scaleUpEndpoint: http://power-api/gpu-worker-1/start
    scaleDownEndpoint: http://power-api/gpu-worker-1/stop
  - name: gpu-worker-2
    gpuCount: 8
    scaleUpEndpoint: http://power-api/gpu-worker-2/start
    scaleDownEndpoint: http://power-api/gpu-worker-2/stop
"""

DOCKER = """\
docker run -d \\
  -e GPU_NODE_1_NAME=gpu-worker-1 \\
  -e GPU_NODE_1_GPU_COUNT=4 \\
  -e GPU_NODE_1_SCALE_UP_ENDPOINT=http://power-api/start \\
  -e GPU_NODE_1_SCALE_DOWN_ENDPOINT=http://power-api/stop \\
  ghcr.io/dseif0x/k8s-gpu-autoprovision:latest
"""

BANDWIDTH = """\
apiVersion: networking.vaclab.org/v1
kind: Bandwidth
metadata:
  name: node-name
spec:
  capacity:
    local:
      ulMbps: 20000  # OVS uplink capacity in Mbps
      dlMbps: 20000  # OVS downlink capacity in Mbps
    network:
      ulMbps: 1000   # Physical NIC egress capacity
      dlMbps: 1000   # Physical NIC ingress capacity
  reservations: []   # List of pod bandwidth reservations
"""

LEFTOVER = """\
apiVersion: gpu.devplatforms.io/v1alpha1
kind: LeftoverNodePool
metadata:
  name: quick-test
spec:
  region: us-east-1
  nodeClassName: karpenter-quick-test
  families: ["g4dn","g4ad","g5"]   # optional; empty = any GPU family discovered
  minGPUs: 4
  minSpotScore: 6                  # score threshold (0-10)
  targetCount: 2                   # used when requesting placement scores
  requeueMinutes: 7                # periodic refresh
  capacityType: spot               # default
"""

NODE_CLASS = """\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata:
  name: karpenter-quick-test
spec:
  amiFamily: AL2
"""

ALL = {
    "GPUWorkloadBudget": BUDGET,
    "Spotpool": SPOTPOOL,
    "PowerPool": ENVIRONMENT,
    "Bandwidth": BANDWIDTH,
    "LeftoverNodePool": LEFTOVER,
}
