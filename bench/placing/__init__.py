"""A real kube-scheduler and API server with many nodes that no kubelet looks after, and pods in the ways that bandwidth can be asked for."""
