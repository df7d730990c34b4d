"""The enode's gRPC services, for snodes and other replicas: decode, call the packages below, encode.

In: requests of EnodeService, ReplicationService and EnodeReplicasService. Out: their responses. Imported by `app`,
`leadership` and the offline `elect`.
"""
