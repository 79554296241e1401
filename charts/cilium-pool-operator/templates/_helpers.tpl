{{- define "appName" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "name" -}}
{{ .Values.fullnameOverride | default (include "appName" .) | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "namespace" -}}
{{ .Values.namespaceOverride | default .Release.Namespace }}
{{- end }}

{{- define "selector" -}}
app.kubernetes.io/name: {{ include "appName" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* metadata of an object: dict root, name, and maybe namespace, labels, annotations */}}
{{- define "metadata" -}}
name: {{ .name }}
{{- with .namespace }}
namespace: {{ . }}
{{- end }}
labels:
  {{- include "labels" .root | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The Lease that replicas lead by: the default of --leader-elect-name. */}}
{{- define "leaseName" -}}
cilium-pool-operator
{{- end }}

{{- define "checkName" -}}
{{ include "name" . }}-check
{{- end }}

{{- define "nodeAgentName" -}}
{{ include "name" . }}-node-agent
{{- end }}

{{- /* "true" where node agents run, else "". */}}
{{- define "runsNodeAgents" -}}
{{- if and (eq .Values.mode "delegated-plugin") (not .Values.shadow) }}true{{ end }}
{{- end }}

{{- define "nodeAgentSelector" -}}
app.kubernetes.io/name: {{ include "appName" . }}-node-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "metricsService" -}}
{{ include "name" . }}-metrics
{{- end }}

{{- define "serviceAccount" -}}
{{ if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "name" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- define "subjects" -}}
- kind: ServiceAccount
  name: {{ include "serviceAccount" . }}
  namespace: {{ include "namespace" . }}
{{- end }}

{{- /* A registry of its own takes the place of the one in the repository: a first part with a dot or a port. */}}
{{- define "image" -}}
{{- $repository := .Values.image.repository }}
{{- with (.Values.global | default dict).imageRegistry | default .Values.image.registry }}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) (regexReplaceAll "^([^/]*[.:][^/]*|localhost)/" $repository "") }}
{{- end }}
{{- $repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* Names, or objects with a name. */}}
{{- define "imagePullSecrets" -}}
{{- $secrets := list }}
{{- range concat ((.Values.global | default dict).imagePullSecrets | default list) (.Values.imagePullSecrets | default list) }}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) }}
{{- end }}
{{- with uniq $secrets }}{{ toYaml . }}{{ end }}
{{- end }}

{{- /*
A node may bear these taints until the operator has assigned it addresses. Without a toleration of each, nodes
and operator could wait for each other for ever. No effect: any.
*/}}
{{- define "tolerations" -}}
{{- $tolerations := list }}
{{- range concat (list "node.kubernetes.io/not-ready" "node.kubernetes.io/network-unavailable" "node.cilium.io/agent-not-ready"
  "node.cloudprovider.kubernetes.io/uninitialized" "cilium-pool.io/no-addresses" .Values.nodes.shortageTaint) (.Values.nodes.startupTaints | default list) | compact }}
{{- $tolerations = append $tolerations (dict "key" . "operator" "Exists") }}
{{- end }}
{{- toYaml (concat $tolerations (.Values.tolerations | default list) | uniq) }}
{{- end }}

{{- define "env" -}}
{{- with concat (include "apiServerEnv" . | fromYamlArray) (.Values.extraEnv | default list) }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{- define "apiServerEnv" -}}
{{- $env := list }}
{{- with .Values.k8sServiceHost }}
{{- $env = append $env (dict "name" "KUBERNETES_SERVICE_HOST" "value" .) }}
{{- with $.Values.k8sServicePort }}
{{- $env = append $env (dict "name" "KUBERNETES_SERVICE_PORT" "value" (toString .)) }}
{{- end }}
{{- end }}
{{- with $env }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{- /* address:port, of a value with both */}}
{{- define "hostPort" -}}
{{ if contains ":" .address }}[{{ .address }}]{{ else }}{{ .address }}{{ end }}:{{ .port }}
{{- end }}

{{- /* Address of the metrics endpoint: without authentication it stays on the host. */}}
{{- define "metricsAddress" -}}
{{- with .Values.metrics }}
{{- if not .port }}0
{{- else }}{{ include "hostPort" (dict "port" .port "address" (.address | default (ternary "" "127.0.0.1" .secure))) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* A number or a word; a template prints a million as 1e+06. */}}
{{- define "rate" -}}{{ toJson . | trimAll "\"" }}{{- end }}

{{- define "args" -}}
- --leader-elect={{ .Values.leaderElection.enabled }}
- --leader-elect-namespace={{ include "namespace" . }}
- {{ printf "--metrics-bind-address=%s" (include "metricsAddress" .) | quote }}
- --metrics-secure={{ .Values.metrics.secure }}
- --metrics-cert-dir={{ if .Values.metrics.certSecret }}/var/run/metrics-cert{{ end }}
- {{ printf "--health-probe-bind-address=%s" (include "hostPort" .Values.health) | quote }}
- --log-level={{ .Values.log.level }}
- --log-format={{ .Values.log.format }}
- --paused={{ .Values.paused }}
- --shadow={{ .Values.shadow }}
- --expand-threshold-percent={{ .Values.expand.thresholdPercent }}
- --expand-min-free-addresses={{ .Values.expand.minFreeAddresses }}
- --expand-max-blocks-per-node={{ .Values.expand.maxBlocksPerNode }}
- --reclaim-policy={{ .Values.reclaim.policy }}
- --reclaim-threshold-percent={{ .Values.reclaim.thresholdPercent }}
- --reclaim-idle-for={{ .Values.reclaim.idleFor }}
- --reclaim-pressure-percent={{ .Values.reclaim.pressurePercent }}
- --reclaims-per-minute={{ include "rate" .Values.reclaim.perMinute }}
- --reclaims-per-minute-per-pool={{ include "rate" .Values.reclaim.perMinutePerPool }}
- {{ printf "--maintenance-windows=%s" (toJson .Values.maintenance.windows) | quote }}
- --maintenance-blocks-per-hour={{ include "rate" .Values.maintenance.blocksPerHour }}
- --cooldown={{ .Values.cooldown }}
- --node-gone-cooldown={{ .Values.nodeGoneCooldown }}
- --mode={{ .Values.mode }}
- --keep-cilium-pod-ip-pools={{ .Values.cilium.keepPodIPPools }}
- --frr-k8s-namespace={{ if .Values.bgp.frrK8s.enabled }}{{ .Values.bgp.frrK8s.namespace }}{{ end }}
- --cilium-namespace={{ .Values.cilium.namespace }}
- --skip-cilium-check={{ .Values.cilium.skipCheck }}
- --ignore-node-taints={{ join "," .Values.nodes.ignoreTaints }}
- --startup-taints={{ join "," .Values.nodes.startupTaints }}
- --node-condition={{ .Values.nodes.condition }}
- --shortage-taint={{ .Values.nodes.shortageTaint }}
- --scheduling-families={{ if .Values.scheduling.enabled }}{{ join "," .Values.scheduling.families }}{{ end }}
- --scheduling-webhook={{ if eq (include "scheduling.admission" . | trim) "Webhook" }}{{ include "namespace" . }}/{{ include "scheduling.webhook" . }}{{ end }}
- --scheduling-webhook-bind-address=:{{ .Values.scheduling.webhookPort }}
{{- end }}

{{- /* What makes pods request addresses: Policy, Webhook, Nothing where policies are wanted and not served, or "". */}}
{{- define "scheduling.admission" -}}
{{- if .Values.scheduling.enabled }}
{{- $served := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" }}
{{- if eq .Values.scheduling.admission "Policy" }}{{ ternary "Policy" "Nothing" $served }}
{{- else if eq .Values.scheduling.admission "Webhook" }}Webhook
{{- else }}{{ ternary "Policy" "Webhook" $served }}
{{- end }}
{{- end }}
{{- end }}

{{- define "scheduling.webhook" -}}
{{ include "name" . }}-webhook
{{- end }}

{{- /* One replica per host, as two would want the same ports, and what the values add. */}}
{{- define "affinity" -}}
{{- $own := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (include "selector" . | fromYaml)) }}
{{- $affinity := deepCopy .Values.affinity }}
{{- $anti := get $affinity "podAntiAffinity" | default dict }}
{{- $required := get $anti "requiredDuringSchedulingIgnoredDuringExecution" | default list }}
{{- $_ := set $anti "requiredDuringSchedulingIgnoredDuringExecution" (prepend $required $own) }}
{{- toYaml (set $affinity "podAntiAffinity" $anti) }}
{{- end }}
