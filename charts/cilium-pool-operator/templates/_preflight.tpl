{{- /* Refuses a Cilium whose agents would ignore what the operator writes. */}}
{{- define "preflight.mode" -}}
{{- $config := lookup "v1" "ConfigMap" .Values.cilium.namespace "cilium-config" }}
{{- $mode := dig "data" "ipam" "" $config }}
{{- if and $mode (ne $mode .Values.mode) (ne .Values.mode "observe") (not .Values.cilium.skipCheck) (not .Values.shadow) }}
{{- fail (printf "Cilium runs with ipam.mode=%s (ConfigMap %s/cilium-config), in which agents ignore an operator with mode=%s: set ipam.mode=%s in Cilium's values first, or another mode here. To install beside it until then: shadow=true, with which nothing is written" $mode .Values.cilium.namespace .Values.mode .Values.mode) }}
{{- end }}
{{- end }}

{{- /* Refuses a Cilium whose CNI configuration would not name the IPAM plugin. */}}
{{- define "preflight.cni" -}}
{{- $config := dig "data" dict (lookup "v1" "ConfigMap" .Values.cilium.namespace "cilium-config") }}
{{- $named := or (get $config "read-cni-conf") (eq (get $config "custom-cni-conf") "true") }}
{{- if and (eq .Values.mode "delegated-plugin") (get $config "ipam") (not $named) (not .Values.cilium.skipCheck) (not .Values.shadow) }}
{{- fail (printf "Cilium's agents write a CNI configuration without an IPAM plugin, so no pod would start: set cni.configMap=%s in Cilium's values" .Values.nodeAgent.cniConfigMap) }}
{{- end }}
{{- end }}

{{- /* Refuses to run where new nodes bear a taint of another name until their agent runs. */}}
{{- define "preflight.tolerations" -}}
{{- $taint := dig "data" "agent-not-ready-taint-key" "" (lookup "v1" "ConfigMap" .Values.cilium.namespace "cilium-config") }}
{{- if and $taint (not (include "tolerates" (dict "key" $taint "tolerations" (include "tolerations" . | fromYamlArray)))) }}
{{- fail (printf "Cilium's agents start on nodes with the taint %s (agentNotReadyTaintKey), and the operator, which they wait for, would not: add {key: %s, operator: Exists} to tolerations" $taint $taint) }}
{{- end }}
{{- end }}

{{- /* Whether tolerations tolerate a taint of this key, whatever its value. */}}
{{- define "tolerates" -}}
{{- range .tolerations }}
{{- if and (eq (.operator | default "Equal") "Exists") (or (not .key) (eq .key $.key)) }}true{{ end }}
{{- end }}
{{- end }}

{{- /* Not empty: a cilium-operator is there that would not start on a node with the shortage taint. */}}
{{- define "preflight.ciliumOperator" -}}
{{- with .Values.nodes.shortageTaint }}
{{- with lookup "apps/v1" "Deployment" $.Values.cilium.namespace "cilium-operator" }}
{{- if not (include "tolerates" (dict "key" $.Values.nodes.shortageTaint "tolerations" (dig "spec" "template" "spec" "tolerations" list .))) }}true{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Not empty: agents learn nodes from a kvstore alone, where these have no blocks in crd and delegated-plugin mode (pkg/ciliumconfig, LosesRoutes). */}}
{{- define "preflight.routes" -}}
{{- $config := dig "data" dict (lookup "v1" "ConfigMap" .Values.cilium.namespace "cilium-config") }}
{{- if and (has .Values.mode (list "crd" "delegated-plugin")) (get $config "kvstore") (or (ne (get $config "routing-mode") "native") (eq (get $config "auto-direct-node-routes") "true")) }}true{{ end }}
{{- end }}
