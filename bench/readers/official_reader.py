"""The official Python client's shared informer."""

import os
import sys
import time

from kubernetes import client, config
from kubernetes.informer import SharedInformer

from bench.readers import cost

if __name__ == "__main__":
    cost.begin()
    config.load_kube_config(sys.argv[1])
    informer = SharedInformer(list_func=client.CoreV1Api().list_pod_for_all_namespaces)
    informer.start()
    while len(informer.cache.list()) < int(sys.argv[2]):
        time.sleep(0.05)
    cost.report(pods=len(informer.cache.list()))
    sys.stdout.flush()
    os._exit(0)
