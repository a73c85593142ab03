"""Kubernetes, and whoever asks from elsewhere: nothing else in the package needs this folder.

    operator/       an Ensemble becomes MiniClusters, their gRPC service, and a status
    grpc/           the gRPC service and its client: sizes of clusters, remote access to ensembles
    minicluster     the sizes of MiniClusters, which the gRPC service changes
    scaler          an instance inside a MiniCluster, whose size it asks the gRPC service for
    jobsets         JobSets with their pods, for members of a run without Flux
    api_server      a client of the API server, by lightkube; `events` for `kubectl describe`
    health_port     probes and metrics of what runs in a container; `json_logs` is what it logs

The gRPC service is of use without Kubernetes too, so it knows nothing of the others here. The
commands `grpc` and `operator` import this folder when they run, and so do `run` for members that
are JobSets, and `queues.elastic.factory` for an instance that names the scaler "minicluster". It
needs the extra `k8s`; `grpc` is what the gRPC service and its client need of that.
"""
