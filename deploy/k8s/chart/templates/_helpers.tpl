{{/* Names, labels and parts shared by all pods. */}}
{{- define "ortoo.fullname" -}}
{{- $name := ternary .Release.Name (printf "%s-ortoo" .Release.Name) (contains "ortoo" .Release.Name) -}}
{{- $former := $name | trunc 40 | trimSuffix "-" -}}
{{- /* Former versions cut without a hash. A release keeps the names that its volumes have. */}}
{{- $set := ternary (lookup "apps/v1" "StatefulSet" .Release.Namespace (printf "%s-namesrv" $former)) dict (gt (len $name) 40) -}}
{{- if .Values.fullnameOverride -}}{{ .Values.fullnameOverride }}
{{- else if and $set (eq (get $set.metadata.labels "app.kubernetes.io/instance") .Release.Name) -}}{{ $former }}
{{- else -}}{{ include "ortoo.cut" (dict "name" $name "max" 40) }}
{{- end -}}
{{- end }}

{{/* A name of at most "max" characters. A hash replaces the rest, so that different names stay different. */}}
{{- define "ortoo.cut" -}}
{{- if le (len .name) (int .max) -}}{{ .name }}
{{- else -}}{{ .name | trunc (int (sub .max 9)) | trimSuffix "-" }}-{{ sha256sum .name | trunc 8 }}
{{- end -}}
{{- end }}

{{- define "ortoo.labels" -}}
{{ include "ortoo.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The labels of a role's pods. */}}
{{- define "ortoo.podLabels" -}}
{{ include "ortoo.labels" . }}
{{- with (get .root.Values .role).podLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "ortoo.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (ternary (include "ortoo.fullname" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{/* The part of a pod that all pods of the chart have. */}}
{{- define "ortoo.pod" -}}
serviceAccountName: {{ include "ortoo.serviceAccount" . }}
automountServiceAccountToken: false
securityContext: {{- include "ortoo.podSecurity" . | nindent 2 }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Containers, variables, mounts and volumes that the values add to the pods of a role. */}}
{{- define "ortoo.extraContainers" -}}
{{- with (get .root.Values .role).extraContainers }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "ortoo.extraInitContainers" -}}
{{- with (get .root.Values .role).extraInitContainers }}
initContainers: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "ortoo.extraEnv" -}}
{{- include "ortoo.trustedCaEnv" .root }}
{{- with (get .root.Values .role).extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "ortoo.extraEnvFrom" -}}
{{- with (get .root.Values .role).extraEnvFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "ortoo.extraMounts" -}}
{{- include "ortoo.trustedCaMount" .root }}
{{- with (get .root.Values .role).extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "ortoo.extraVolumes" -}}
{{- include "ortoo.trustedCaVolume" .root }}
{{- with (get .root.Values .role).extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Authorities of your own, for the connections to PostgreSQL, Redis and receivers of traces. */}}
{{- define "ortoo.trustedCaEnv" -}}
{{- if .Values.trustedCa.existingConfigMap.name }}
{{- range list "SSL_CERT_FILE" "PGSSLROOTCERT" "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH" }}
- {name: {{ . }}, value: /etc/ortoo/trusted-ca/ca.crt}
{{- end }}
{{- end }}
{{- end }}

{{- define "ortoo.trustedCaMount" -}}
{{- if .Values.trustedCa.existingConfigMap.name }}
- {name: trusted-ca, mountPath: /etc/ortoo/trusted-ca, readOnly: true}
{{- end }}
{{- end }}

{{- define "ortoo.trustedCaVolume" -}}
{{- with .Values.trustedCa.existingConfigMap }}
{{- if .name }}
- name: trusted-ca
  configMap: {name: {{ .name }}, items: [{key: {{ .key }}, path: ca.crt}]}
{{- end }}
{{- end }}
{{- end }}

{{/* The families of a Service. */}}
{{- define "ortoo.ipFamilies" -}}
{{- with .Values.ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .Values.ipFamilies }}
ipFamilies: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The address on which processes listen: with IPv6 that of both families. */}}
{{- define "ortoo.anyAddress" -}}
{{ ternary "[::]" "0.0.0.0" (has "IPv6" .Values.ipFamilies) }}
{{- end }}

{{/* The connection of `ortoo` in a pod to the snodes, with the keys of a user in a Secret. */}}
{{- define "ortoo.commandEnv" -}}
- {name: ORTOO_ADDRESS, value: "{{ include "ortoo.fullname" .root }}:{{ ternary .root.Values.snode.tls.port .root.Values.snode.service.port .root.Values.snode.tls.required }}"}
{{- with .secret.name }}
- {name: ORTOO_ACCESS_KEY, valueFrom: {secretKeyRef: {name: {{ . }}, key: {{ $.secret.accessKey }}}}}
- {name: ORTOO_SECRET_KEY, valueFrom: {secretKeyRef: {name: {{ . }}, key: {{ $.secret.secretKey }}}}}
{{- end }}
{{- end }}

{{- define "ortoo.selector" -}}
app.kubernetes.io/name: ortoo
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- if .role }}
app.kubernetes.io/component: {{ .role }}
{{- end }}
{{- end }}

{{- define "ortoo.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The list of name servers, each by the stable name of its pod. */}}
{{- define "ortoo.namesrvAddresses" -}}
{{- $full := include "ortoo.fullname" . -}}
{{- $list := list -}}
{{- range $n := until (int .Values.namesrv.replicas) -}}
{{- $list = append $list (printf "%s-namesrv-%d.%s-namesrv:%d" $full $n $full (ternary 8073 8071 (not (empty (include "ortoo.clusterTls" $))))) -}}
{{- end -}}
{{- join ";" $list -}}
{{- end }}

{{- define "ortoo.postgresqlSecret" -}}
{{- if .Values.postgresql.existingSecret.name -}}{{ .Values.postgresql.existingSecret.name }}
{{- else if or .Values.postgresql.url .Values.postgresql.bundled.enabled -}}{{ include "ortoo.fullname" . }}-postgresql
{{- end -}}
{{- end }}

{{- define "ortoo.redisSecret" -}}
{{- if .Values.redis.existingSecret.name -}}{{ .Values.redis.existingSecret.name }}
{{- else if .Values.redis.url -}}{{ include "ortoo.fullname" . }}-redis
{{- end -}}
{{- end }}

{{- define "ortoo.accessSecret" -}}
{{- if .Values.snode.access.existingSecret.name -}}{{ .Values.snode.access.existingSecret.name }}
{{- else if .Values.snode.access.rules -}}{{ include "ortoo.fullname" . }}-access
{{- end -}}
{{- end }}

{{- define "ortoo.limitsConfigMap" -}}
{{- if .Values.snode.flowControl.existingConfigMap.name -}}{{ .Values.snode.flowControl.existingConfigMap.name }}
{{- else if .Values.snode.flowControl.limits -}}{{ include "ortoo.fullname" . }}-limits
{{- end -}}
{{- end }}

{{/* A role's part of the Secret of tokens and keys: its settings, its mount, its volume. */}}
{{- define "ortoo.secretFiles" -}}
{{- $files := dict "cluster_token_file" .root.Values.secrets.keys.clusterToken -}}
{{- if ne .role "enode" }}{{ $_ := set $files "admin_token_file" .root.Values.secrets.keys.adminToken }}{{ end -}}
{{- if eq .role "namesrv" }}{{ $_ := set $files "secrets_key_file" .root.Values.secrets.keys.secretsKey }}{{ end -}}
{{- range $name, $key := $files }}{{ if not $key }}{{ $_ := unset $files $name }}{{ end }}{{ end -}}
{{- if .root.Values.secrets.existingSecret.name }}{{ toJson $files }}{{ else }}{}{{ end -}}
{{- end }}

{{- define "ortoo.secretSettings" -}}
{{- range $name, $key := include "ortoo.secretFiles" . | fromJson }}
- {name: {{ printf "ORTOO_%s_%s" (upper $.role) (upper $name) }}, value: {{ printf "/etc/ortoo/secrets/%s" $name }}}
{{- end }}
{{- if include "ortoo.clusterTls" .root }}
{{- $prefix := printf "ORTOO_%s_TLS_CLUSTER" (upper .role) }}
- {name: {{ $prefix }}_LISTEN_ADDRESS, value: "{{ include "ortoo.anyAddress" .root }}:{{ include "ortoo.clusterPort" . }}"}
- {name: {{ $prefix }}_CERTIFICATE_FILE, value: /etc/ortoo/cluster-tls/tls.crt}
- {name: {{ $prefix }}_KEY_FILE, value: /etc/ortoo/cluster-tls/tls.key}
- {name: {{ $prefix }}_CA_FILE, value: /etc/ortoo/cluster-tls/{{ .root.Values.clusterTls.ca }}}
- {name: {{ $prefix }}_NAME, value: {{ .root.Values.clusterTls.name }}}
{{- if ne .role "snode" }}
{{- range $caller, $names := .root.Values.clusterTls.roleNames }}
{{- if $names }}
- {name: {{ printf "ORTOO_%s_ROLE_NAMES_%s" (upper $.role) (upper $caller) }}, value: {{ $names | quote }}}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- if and .root.Values.insecure (ne .role "enode") }}
- {name: {{ printf "ORTOO_%s_INSECURE" (upper .role) }}, value: "true"}
{{- end }}
{{- end }}

{{- define "ortoo.secretMount" -}}
{{- if include "ortoo.secretFiles" . | fromJson }}
- {name: secrets, mountPath: /etc/ortoo/secrets, readOnly: true}
{{- end }}
{{- if include "ortoo.clusterTls" .root }}
- {name: cluster-tls, mountPath: /etc/ortoo/cluster-tls, readOnly: true}
{{- end }}
{{- end }}

{{/* The source of the certificates of mutual TLS between the roles; empty = plaintext between the roles. */}}
{{- define "ortoo.clusterTls" -}}
{{- $tls := .Values.clusterTls -}}
{{- if $tls.existingSecret.name -}}shared
{{- else if $tls.certManager.enabled -}}certManager
{{- else if or $tls.existingSecrets.namesrv $tls.existingSecrets.enode $tls.existingSecrets.snode -}}separate
{{- end -}}
{{- end }}

{{/* The Secret with the certificate of a role, or of operators. */}}
{{- define "ortoo.clusterTlsSecret" -}}
{{- $from := include "ortoo.clusterTls" .root -}}
{{- if eq $from "shared" -}}{{ .root.Values.clusterTls.existingSecret.name }}
{{- else if eq $from "certManager" -}}{{ include "ortoo.fullname" .root }}-{{ .role }}-cluster-tls
{{- else if $from -}}{{ get .root.Values.clusterTls.existingSecrets .role }}
{{- end -}}
{{- end }}

{{/* Whether callers of inner ports need a token or a certificate. */}}
{{- define "ortoo.closesInnerPorts" -}}
{{- if or (include "ortoo.clusterTls" .) (and .Values.secrets.existingSecret.name .Values.secrets.keys.clusterToken) -}}true{{- end -}}
{{- end }}

{{/* The port on which other roles call a role with a certificate. */}}
{{- define "ortoo.clusterPort" -}}
{{- get (dict "namesrv" "8073" "enode" "8093" "snode" "8083") .role -}}
{{- end }}

{{- define "ortoo.clusterContainerPort" -}}
{{- if include "ortoo.clusterTls" .root }}
- {name: grpc-cluster, containerPort: {{ include "ortoo.clusterPort" . }}}
{{- end }}
{{- end }}

{{- define "ortoo.clusterServicePort" -}}
{{- if include "ortoo.clusterTls" .root }}
- {name: grpc-cluster, port: {{ include "ortoo.clusterPort" . }}, targetPort: grpc-cluster}
{{- end }}
{{- end }}

{{- define "ortoo.secretVolume" -}}
{{- with include "ortoo.secretFiles" . | fromJson }}
- name: secrets
  secret:
    secretName: {{ $.root.Values.secrets.existingSecret.name }}
    # Kubernetes lets the pod's group read it as well, and no other user.
    defaultMode: 0400
    items:
      {{- range $name, $key := . }}
      - {key: {{ $key }}, path: {{ $name }}}
      {{- end }}
{{- end }}
{{- with include "ortoo.clusterTlsSecret" . }}
- name: cluster-tls
  secret: {secretName: {{ . }}, defaultMode: 0400}
{{- end }}
{{- end }}

{{/* OpenShift chooses the user and the groups of each namespace. */}}
{{- define "ortoo.podSecurity" -}}
{{- $security := .Values.podSecurityContext }}
{{- if .Values.openshift }}{{ $security = omit $security "runAsUser" "runAsGroup" "fsGroup" }}{{ end -}}
{{ toYaml $security }}
{{- end }}

{{- define "ortoo.containerSecurity" -}}
{{ toYaml .Values.containerSecurityContext }}
{{- end }}

{{/* Settings as environment: {"store.flush_mode": "sync"} becomes ORTOO_ENODE_STORE_FLUSH_MODE. */}}
{{- define "ortoo.settings" -}}
{{- $prefix := printf "ORTOO_%s_" (upper .role) -}}
{{- range $name, $value := .settings }}
- {name: {{ printf "%s%s" $prefix (upper (replace "." "_" $name)) }}, value: {{ ternary (printf "%d" (int64 $value)) (toString $value) (and (kindIs "float64" $value) (eq (floor $value) $value)) | quote }}}
{{- end }}
{{- end }}

{{/* gRPC probes: live while the event loop runs and the process can work; ready while it accepts requests, or with
     "whenever" as another name of the health service says. gRPC probes one of several workers; "http" probes all. */}}
{{- define "ortoo.probes" -}}
{{- $live := ternary (dict "httpGet" (dict "port" "metrics" "path" "/healthz")) (dict "grpc" (dict "port" .port "service" "live")) (not (empty .http)) }}
{{- $ready := ternary (dict "httpGet" (dict "port" "metrics" "path" "/readyz")) (dict "grpc" (ternary (dict "port" .port "service" .whenever) (dict "port" .port) (not (empty .whenever)))) (not (empty .http)) }}
{{- /* Not readiness: an enode with a full disk would be killed repeatedly instead of serving readers. */}}
startupProbe: {{- merge (deepCopy .probes.startup) $live | toYaml | nindent 2 }}
readinessProbe: {{- merge (deepCopy .probes.readiness) $ready | toYaml | nindent 2 }}
livenessProbe: {{- merge (deepCopy .probes.liveness) $live | toYaml | nindent 2 }}
{{- end }}

{{/* The directions of a policy. With egress, pods reach the cluster's own pods, name resolution and the given peers. */}}
{{- define "ortoo.egress" -}}
{{- if .Values.networkPolicy.egress.enabled -}}
policyTypes: [Ingress, Egress]
egress:
  - to:
      - podSelector:
          matchLabels: {{- include "ortoo.selector" (dict "root" .) | nindent 12 }}
  - ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
  {{- with .Values.networkPolicy.egress.rules }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- else -}}
policyTypes: [Ingress]
{{- end }}
{{- end }}

{{- define "ortoo.placement" -}}
{{- $values := get .root.Values .role -}}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- $own := $values.topologySpreadConstraints }}
{{- if $own }}
topologySpreadConstraints:
{{- range $own }}
  - {{ merge (dict) . (dict "labelSelector" (dict "matchLabels" (include "ortoo.selector" $ | fromYaml))) | toYaml | nindent 4 | trim }}
{{- end }}
{{- else if .enode }}
# Replicas of one enode on different machines, and in different zones where there are enough zones.
topologySpreadConstraints:
  - topologyKey: kubernetes.io/hostname
    maxSkew: 1
    whenUnsatisfiable: {{ $values.memberSpread | default $values.replicaSpread }}
    labelSelector: {matchLabels: {ortoo/enode: {{ .enode }}}}
  - topologyKey: topology.kubernetes.io/zone
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector: {matchLabels: {ortoo/enode: {{ .enode }}}}
{{- else }}
# Spread where possible, but never unscheduled for it.
topologySpreadConstraints:
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - topologyKey: {{ . }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "ortoo.selector" $ | nindent 8 }}
{{- end }}
{{- end }}
{{- end }}

{{/* The number of replicas of each enode. The former name of the value is accepted for one version. */}}
{{- define "ortoo.replicasPerEnode" -}}
{{ .Values.enode.members | default .Values.enode.replicasPerEnode }}
{{- end }}

{{/* A pod's annotations: those of the values, and a checksum of the values that its process reads only at its start. The
     process reloads files of rules, limits and certificates, so they are not in the checksum. */}}
{{- define "ortoo.podAnnotations" -}}
{{- $values := get .root.Values .role -}}
{{- $read := dict "namesrv" (list .root.Values.postgresql.url .root.Values.postgresql.bundled.password) "enode" list "snode" (list .root.Values.redis.url) -}}
annotations:
  checksum/config: {{ list (get $read .role) .root.Values.secrets (omit .root.Values.clusterTls "certManager") | toJson | sha256sum }}
  {{- with $values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "ortoo.serviceAnnotations" -}}
{{- with (get .root.Values .role).service.annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The claims of a StatefulSet. Kubernetes refuses any change of them, so an existing set keeps its claims; "storage"
     empty = a new set needs none. Only a helm with access to the cluster sees existing sets. */}}
{{- define "ortoo.volumeClaims" -}}
{{- $set := lookup "apps/v1" "StatefulSet" .root.Release.Namespace .set -}}
{{- if $set -}}
{{- if and .needed (not $set.spec.volumeClaimTemplates) }}
{{- fail (printf "%s was made without volumes, and Kubernetes does not add volumes to a set: move the database to SQLite as described in docs/operations/directory.md, run kubectl delete statefulset %s --cascade=orphan, and upgrade again" .set .set) }}
{{- end }}
{{- with $set.spec.volumeClaimTemplates }}
volumeClaimTemplates: {{- toYaml . | nindent 2 }}
{{- end }}
{{- else if .storage }}
volumeClaimTemplates:
  - metadata:
      name: data
    spec:
      accessModes: [ReadWriteOnce]
      {{- with .storage.className }}
      storageClassName: {{ . }}
      {{- end }}
      resources: {requests: {storage: {{ .storage.size }}}}
{{- end }}
{{- end }}
