{{- /*
Host and port of the API server for the operator's pods, separated by a space;
empty: what Kubernetes sets in each pod (the Service "kubernetes").

Where Cilium replaces kube-proxy, its agents serve that Service, and they start
only after this operator has assigned addresses. So k8sServiceHost=auto takes what
Cilium's agents themselves were given, else what kubeadm has published.
*/}}
{{- define "apiServer" -}}
{{- if ne .Values.k8sServiceHost "auto" }}
{{- with .Values.k8sServiceHost }}{{ . }} {{ $.Values.k8sServicePort }}{{ end }}
{{- else }}
{{- include "apiServer.ofCilium" . | default (include "apiServer.ofKubeadm" .) }}
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
{{- with get $env "KUBERNETES_SERVICE_HOST" }}{{ . }} {{ get $env "KUBERNETES_SERVICE_PORT" }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* ConfigMap cluster-info of kubeadm, where no kube-proxy serves the Service. */}}
{{- define "apiServer.ofKubeadm" -}}
{{- if not (lookup "apps/v1" "DaemonSet" "kube-system" "kube-proxy") }}
{{- $kubeconfig := dig "data" "kubeconfig" "" (lookup "v1" "ConfigMap" "kube-public" "cluster-info") }}
{{- with dig "clusters" list ($kubeconfig | fromYaml) }}
{{- include "apiServer.ofURL" (first . | dig "cluster" "server" "") }}
{{- end }}
{{- end }}
{{- end }}

{{- define "apiServer.ofURL" -}}
{{- $host := (urlParse .).host }}
{{- $port := regexFind ":[0-9]+$" $host }}
{{- trimSuffix $port $host | trimPrefix "[" | trimSuffix "]" }} {{ trimPrefix ":" $port | default "443" }}
{{- end }}

{{- /* No more replicas than there are nodes for them: each needs ports of a host of its own. */}}
{{- define "replicas" -}}
{{- $nodes := 0 }}
{{- range $node := (lookup "v1" "Node" "" "").items }}
{{- $fits := true }}
{{- range $key, $value := $.Values.nodeSelector }}
{{- if ne (dig "metadata" "labels" $key "" $node) $value }}{{ $fits = false }}{{ end }}
{{- end }}
{{- if $fits }}{{ $nodes = add1 $nodes }}{{ end }}
{{- end }}
{{- if and $nodes (lt (int $nodes) (int .Values.replicas)) }}{{ $nodes }}{{ else }}{{ .Values.replicas }}{{ end }}
{{- end }}
