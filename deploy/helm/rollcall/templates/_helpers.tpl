{{/* The name of everything; a pod's is shorter than 64 characters with what Kubernetes adds. */}}
{{- define "rollcall.name" -}}
{{- $name := ternary .Release.Name (printf "%s-rollcall" .Release.Name) (contains "rollcall" .Release.Name) -}}
{{- $name | replace "." "-" | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "rollcall.selector" -}}
app.kubernetes.io/name: rollcall
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "rollcall.metadata" -}}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "rollcall.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "rollcall.scheme" -}}{{ ternary "http" "https" (eq .Values.tls.source "none") }}{{- end -}}

{{- define "rollcall.tlsSecret" -}}
{{- ternary .Values.tls.secret (printf "%s-tls" (include "rollcall.name" .)) (eq .Values.tls.source "secret") -}}
{{- end -}}

{{/* The domain of the pods: each has the name POD.DOMAIN, whatever its address is. */}}
{{- define "rollcall.domain" -}}{{ include "rollcall.name" . }}-nodes.{{ .Release.Namespace }}.svc{{- end -}}

{{- define "rollcall.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{/* What keeps every container from more than it needs. */}}
{{- define "rollcall.confined" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{- define "rollcall.user" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The secrets, readable for the pod's group alone. */}}
{{- define "rollcall.secretVolumes" -}}
{{- if ne .Values.tls.source "none" }}
- name: tls
  secret: {secretName: {{ include "rollcall.tlsSecret" . }}, defaultMode: 0440}
{{- end }}
{{- with .Values.auth.secret }}
- name: auth
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{- define "rollcall.secretMounts" -}}
{{- if ne .Values.tls.source "none" }}
- {name: tls, mountPath: /etc/rollcall/tls, readOnly: true}
{{- end }}
{{- if .Values.auth.secret }}
- {name: auth, mountPath: /etc/rollcall/auth, readOnly: true}
{{- end }}
{{- end -}}

{{/* YAML reads an on without quotes as true. */}}
{{- define "rollcall.authMode" -}}
{{- get (dict "true" "on" "false" "off") (toString .Values.auth.mode) | default .Values.auth.mode -}}
{{- end -}}

{{/* What the schema cannot say: values that need each other. */}}
{{- define "rollcall.validate" -}}
{{- $authOn := eq (include "rollcall.authMode" .) "on" -}}
{{- with .Values -}}
{{- if and (eq .mode "cp") (eq (mod .replicas 2) 0) }}
{{- fail (printf "replicas: %v: mode cp wants an odd number, because one node more bears no more failures" .replicas) }}
{{- end }}
{{- if and (eq .tls.source "secret") (not .tls.secret) }}
{{- fail "tls.secret: is required with tls.source secret: the name of a Secret with tls.crt, tls.key and ca.crt" }}
{{- end }}
{{- if and (ne .tls.source "secret") .tls.secret }}
{{- fail (printf "tls.secret: has no effect with tls.source %s; set tls.source: secret" .tls.source) }}
{{- end }}
{{- if and (ne .tls.source "certManager") (or .tls.dnsNames .tls.issuer.name) }}
{{- fail (printf "tls.dnsNames, tls.issuer.name: have no effect with tls.source %s; set tls.source: certManager" .tls.source) }}
{{- end }}
{{- if and (not .auth.secret) (or .auth.file .auth.bootstrapToken .auth.readerToken .auth.nodeTokens) }}
{{- fail "auth.secret: is required with auth.file, auth.bootstrapToken, auth.readerToken or auth.nodeTokens: the name of the Secret that has them" }}
{{- end }}
{{- if and (eq .mode "ap") $authOn (not .auth.file) }}
{{- fail "auth.file: is required in mode ap with auth.mode on: roles and tokens come from that file" }}
{{- end }}
{{- if and (eq .mode "ap") .auth.bootstrapToken }}
{{- fail "auth.bootstrapToken: is for mode cp; in mode ap the operators come from auth.file" }}
{{- end }}
{{- if and (eq .mode "cp") .auth.nodeTokens }}
{{- fail "auth.nodeTokens: is for mode ap; in mode cp the nodes know each other by their certificates" }}
{{- end }}
{{- if and $authOn .monitoring.serviceMonitor (not .auth.readerToken) }}
{{- fail "auth.readerToken: is required with auth.mode on and monitoring.serviceMonitor: metrics need a token with the rule \"metrics read\"" }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The file of settings: defaults of the chart, then those of the values, then what other values decide. */}}
{{- define "rollcall.settings" -}}
{{- $name := include "rollcall.name" . -}}
{{- $domain := include "rollcall.domain" . -}}
{{- $plain := eq .Values.tls.source "none" -}}
{{- $files := dict "cert" "/etc/rollcall/tls/tls.crt" "key" "/etc/rollcall/tls/tls.key" -}}
{{- $trusted := merge (dict "ca" "/etc/rollcall/tls/ca.crt") $files -}}
{{- $first := dict -}}
{{- $last := dict "mode" .Values.mode "shutdown-delay" (printf "%vs" .Values.shutdownDelay) -}}
{{- $_ := set $last "data" (dict "dir" "/var/lib/rollcall/data") -}}
{{- $_ := set $last "http" (dict "addr" ":8761") -}}
{{- if $plain }}{{ $_ := set $last.http "plain" true }}{{ else }}{{ $_ := set $last.http "tls" $files }}{{ end -}}
{{- $auth := dict "mode" (include "rollcall.authMode" .) -}}
{{- with .Values.auth.file }}{{ $_ := set $auth "file" (printf "/etc/rollcall/auth/%s" .) }}{{ end -}}
{{- with .Values.auth.bootstrapToken }}{{ $_ := set $auth "bootstrap-token-file" (printf "/etc/rollcall/auth/%s" .) }}{{ end -}}
{{- $_ := set $last "auth" $auth -}}
{{- $nodes := list -}}
{{- range $i := until (int .Values.replicas) -}}
{{- $host := printf "%s-%d.%s" $name $i $domain -}}
{{- $nodes = append $nodes (ternary (printf "%s:7761" $host) (printf "%s://%s:8761" (include "rollcall.scheme" $) $host) (eq $.Values.mode "cp")) -}}
{{- end -}}
{{- if eq .Values.mode "cp" -}}
{{- $_ := set $last "cluster" (dict "addr" ":7761" "join" $nodes "bootstrap-expect" .Values.replicas) -}}
{{- if $plain }}{{ $_ := set $last.cluster "plain" true }}{{ else }}{{ $_ := set $last.cluster "tls" $trusted }}{{ end -}}
{{- else -}}
{{- $_ := set $last "replication" (dict "nodes" $nodes) -}}
{{- if not $plain }}{{ $_ := set $first "replication" (dict "tls" $trusted) }}{{ end -}}
{{- end -}}
{{- mergeOverwrite $first (deepCopy .Values.settings) $last | toYaml -}}
{{- end -}}
