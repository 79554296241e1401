{{- /* Refuses a Cilium whose agents would ignore what the operator writes. */}}
{{- define "preflight.mode" -}}
{{- $config := lookup "v1" "ConfigMap" .Values.cilium.namespace "cilium-config" }}
{{- $mode := dig "data" "ipam" "" $config }}
{{- if and $mode (ne $mode .Values.mode) (not .Values.cilium.skipCheck) (not .Values.shadow) }}
{{- fail (printf "Cilium runs with ipam.mode=%s (ConfigMap %s/cilium-config), in which agents ignore an operator with mode=%s: set ipam.mode=%s in Cilium's values first, or another mode here. To install beside it until then: shadow=true, with which nothing is written" $mode .Values.cilium.namespace .Values.mode .Values.mode) }}
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

{{- /* Not empty: agents learn nodes from a kvstore alone, where these have no podCIDRs in crd mode (pkg/ciliumconfig, LosesRoutes). */}}
{{- define "preflight.routes" -}}
{{- $config := dig "data" dict (lookup "v1" "ConfigMap" .Values.cilium.namespace "cilium-config") }}
{{- if and (eq .Values.mode "crd") (get $config "kvstore") (or (ne (get $config "routing-mode") "native") (eq (get $config "auto-direct-node-routes") "true")) }}true{{ end }}
{{- end }}

{{- /* Refuses pools that are in the cluster and belong to something else, with more help than Helm gives. */}}
{{- define "preflight.owners" -}}
{{- if include "pools.served" . }}
{{- range $name, $_ := .Values.pools }}
{{- with lookup "cilium-pool.io/v1alpha1" "PodIPPool" "" $name }}
{{- $owner := dig "metadata" "annotations" "meta.helm.sh/release-name" "" . }}
{{- if not $owner }}
{{- fail (printf "PodIPPool %s exists and was not made by Helm (kubectl apply?). Manage a pool in one place. Either remove it from pools in the values, or let this release take it over: kubectl annotate podippool %s meta.helm.sh/release-name=%s meta.helm.sh/release-namespace=%s && kubectl label podippool %s app.kubernetes.io/managed-by=Helm" $name $name $.Release.Name $.Release.Namespace $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /*
A line for each range of a pool in the values that does not fit the cluster.
Ranges are compared as strings of bits: one contains the other, or they are apart.
Where Helm cannot ask the API server, only the pools themselves are compared.
*/}}
{{- define "preflight.pools" -}}
{{- if .Values.pools }}
{{- $others := include "preflight.others" . | fromYamlArray }}
{{- $config := dig "data" dict (lookup "v1" "ConfigMap" .Values.cilium.namespace "cilium-config") }}
{{- $seen := list }}
{{- range $name, $pool := .Values.pools }}
{{- range $family := list "ipv4" "ipv6" }}
{{- $native := include "preflight.native" (dict "config" $config "family" $family "namespace" $.Values.cilium.namespace) | fromYamlArray }}
{{- range dig $family "cidrs" list $pool }}
{{- $cidr := .cidr }}
{{- $bits := include "cidr.bits" $cidr }}
{{- range concat $others $seen }}
{{- if or (hasPrefix .bits $bits) (hasPrefix $bits .bits) }}
- {{ $cidr }} of pool {{ $name }} overlaps {{ .cidr }}, {{ .what }}
{{- end }}
{{- end }}
{{- $inside := not $native }}
{{- range $native }}
{{- if hasPrefix (include "cidr.bits" .) $bits }}{{ $inside = true }}{{ end }}
{{- end }}
{{- if not $inside }}
- {{ $cidr }} of pool {{ $name }} is not within {{ join ", " $native }}, which Cilium does not masquerade: connections to its pods would be masqueraded
{{- end }}
{{- $seen = append $seen (dict "cidr" $cidr "bits" $bits "what" (printf "of pool %s" $name)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* A line for each range of a pool in the values that may be other people's. */}}
{{- define "preflight.public" -}}
{{- range $name, $pool := .Values.pools }}
{{- range $family := list "ipv4" "ipv6" }}
{{- range dig $family "cidrs" list $pool }}
{{- $bits := include "cidr.bits" .cidr }}
{{- $public := true }}
{{- range list "10.0.0.0/8" "172.16.0.0/12" "192.168.0.0/16" "100.64.0.0/10" "fc00::/7" }}
{{- if hasPrefix (include "cidr.bits" .) $bits }}{{ $public = false }}{{ end }}
{{- end }}
{{- if $public }}
- {{ .cidr }} of pool {{ $name }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The ranges of a family that Cilium does not masquerade; none: it masquerades nothing, or that is not known. */}}
{{- define "preflight.native" -}}
{{- if and (eq (get .config "routing-mode") "native") (eq (get .config (printf "enable-%s-masquerade" .family)) "true") }}
{{- with get .config (printf "%s-native-routing-cidr" .family) }}
- {{ . }}
{{- end }}
{{- if eq (get .config "enable-ip-masq-agent") "true" }}
{{- range dig "nonMasqueradeCIDRs" list (dig "data" "config" "" (lookup "v1" "ConfigMap" .namespace "ip-masq-agent") | fromYaml) }}
- {{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Addresses that belong to something else, as a list of {cidr, bits, what}. */}}
{{- define "preflight.others" -}}
{{- with lookup "v1" "Service" "default" "kubernetes" }}
{{- include "preflight.other" (dict "cidr" .spec.clusterIP "what" "the address of the Service kubernetes") }}
{{- end }}
{{- if .Capabilities.APIVersions.Has "networking.k8s.io/v1/ServiceCIDR" }}
{{- range (lookup "networking.k8s.io/v1" "ServiceCIDR" "" "").items }}
{{- range .spec.cidrs }}
{{- include "preflight.other" (dict "cidr" . "what" "a range of Services") }}
{{- end }}
{{- end }}
{{- end }}
{{- range (lookup "v1" "Node" "" "").items }}
{{- $node := .metadata.name }}
{{- range dig "status" "addresses" list . }}
{{- if has .type (list "InternalIP" "ExternalIP") }}
{{- include "preflight.other" (dict "cidr" .address "what" (printf "an address of Node %s" $node)) }}
{{- end }}
{{- end }}
{{- range dig "spec" "podCIDRs" list . }}
{{- include "preflight.other" (dict "cidr" . "what" (printf "the podCIDR of Node %s" $node)) }}
{{- end }}
{{- end }}
{{- if include "pools.served" . }}
{{- range (lookup "cilium-pool.io/v1alpha1" "PodIPPool" "" "").items }}
{{- if not (hasKey ($.Values.pools | default dict) .metadata.name) }}
{{- $what := printf "of PodIPPool %s: the older pool assigns the blocks of both; nodes keep those of the other pool, and get no more" .metadata.name }}
{{- range concat (dig "spec" "ipv4" "cidrs" list .) (dig "spec" "ipv6" "cidrs" list .) }}
{{- if eq (dig "allocationPolicy" "Allocate" .) "Allocate" }}
{{- include "preflight.other" (dict "cidr" .cidr "what" $what) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "preflight.other" }}
- {cidr: {{ .cidr | quote }}, bits: {{ include "cidr.bits" .cidr | quote }}, what: {{ .what | quote }}}
{{- end }}

{{- /* 4 or 6 for the family, and the bits that all addresses of a range begin with. */}}
{{- define "cidr.bits" -}}
{{- $parts := splitList "/" . }}
{{- $address := first $parts }}
{{- $v6 := contains ":" $address }}
{{- $bits := "" }}
{{- if $v6 }}
{{- $halves := splitList "::" $address }}
{{- $head := compact (splitList ":" (first $halves)) }}
{{- $tail := list }}
{{- if gt (len $halves) 1 }}{{ $tail = compact (splitList ":" (last $halves)) }}{{ end }}
{{- range $head }}{{ $bits = printf "%s%016b" $bits (int (printf "0x%s" .)) }}{{ end }}
{{- range untilStep (add (len $head) (len $tail) | int) 8 1 }}{{ $bits = printf "%s%016b" $bits 0 }}{{ end }}
{{- range $tail }}{{ $bits = printf "%s%016b" $bits (int (printf "0x%s" .)) }}{{ end }}
{{- else }}
{{- range splitList "." $address }}{{ $bits = printf "%s%08b" $bits (int .) }}{{ end }}
{{- end }}
{{- $length := len $bits }}
{{- if gt (len $parts) 1 }}{{ $length = int (index $parts 1) }}{{ end }}
{{- ternary "6" "4" $v6 }}{{ substr 0 $length $bits }}
{{- end }}
