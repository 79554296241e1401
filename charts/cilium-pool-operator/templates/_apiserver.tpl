{{- /*
Refuses the Service "kubernetes" as the way to the API server where only Cilium's agents
serve it: they start after this operator has assigned addresses. Renders nothing, so that an
object is the same with and without a cluster to ask.
*/}}
{{- define "preflight.apiServer" -}}
{{- $host := .Values.k8sServiceHost }}
{{- if or (not $host) (eq $host "auto") }}
{{- $found := "" }}
{{- if not (lookup "apps/v1" "DaemonSet" "kube-system" "kube-proxy") }}
{{- $found = include "apiServer.ofCilium" . | default (include "apiServer.ofKubeadm" .) | trim }}
{{- end }}
{{- with $found }}
{{- $parts := splitList " " . }}
{{- fail (printf "the operator cannot reach the API server by the Service kubernetes: no kube-proxy serves it, and Cilium's agents, which do, wait for the operator. Set the address as for Cilium: k8sServiceHost=%s,k8sServicePort=%s" (first $parts) (last $parts)) }}
{{- end }}
{{- if $host }}
{{- fail "k8sServiceHost=auto is not supported, as the rendered objects must not depend on the cluster: set the address that Cilium's k8sServiceHost names, or leave it empty where kube-proxy runs" }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What Cilium's agents use: k8sServiceHost or k8s.apiServerURLs of Cilium's chart. */}}
{{- define "apiServer.ofCilium" -}}
{{- $config := lookup "v1" "ConfigMap" .Values.cilium.namespace "cilium-config" }}
{{- $urls := dig "data" "k8s-api-server-urls" "" $config }}
{{- if $urls }}
{{- include "apiServer.ofURL" (regexSplit "[ ,]+" (trim $urls) -1 | first) }}
{{- else }}
{{- range dig "spec" "template" "spec" "containers" list (lookup "apps/v1" "DaemonSet" .Values.cilium.namespace "cilium") }}
{{- if eq .name "cilium-agent" }}
{{- $env := dict }}
{{- range .env }}{{ $_ := set $env .name (.value | default "") }}{{ end }}
{{- with get $env "KUBERNETES_SERVICE_HOST" }}{{ . }} {{ get $env "KUBERNETES_SERVICE_PORT" | default "443" }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* ConfigMap cluster-info of kubeadm. */}}
{{- define "apiServer.ofKubeadm" -}}
{{- $kubeconfig := dig "data" "kubeconfig" "" (lookup "v1" "ConfigMap" "kube-public" "cluster-info") }}
{{- with dig "clusters" list ($kubeconfig | fromYaml) }}
{{- include "apiServer.ofURL" (first . | dig "cluster" "server" "") }}
{{- end }}
{{- end }}

{{- define "apiServer.ofURL" -}}
{{- $host := (urlParse .).host }}
{{- $port := regexFind ":[0-9]+$" $host }}
{{- trimSuffix $port $host | trimPrefix "[" | trimSuffix "]" }} {{ trimPrefix ":" $port | default "443" }}
{{- end }}

{{- /* How many nodes are there for the operator, of which each replica needs one; empty: enough, or unknown. */}}
{{- define "preflight.nodes" -}}
{{- $nodes := 0 }}
{{- range $node := (lookup "v1" "Node" "" "").items }}
{{- $fits := true }}
{{- range $key, $value := $.Values.nodeSelector }}
{{- if ne (dig "metadata" "labels" $key "" $node) $value }}{{ $fits = false }}{{ end }}
{{- end }}
{{- if $fits }}{{ $nodes = add1 $nodes }}{{ end }}
{{- end }}
{{- if and $nodes (lt (int $nodes) (int .Values.replicas)) }}{{ $nodes }}{{ end }}
{{- end }}
