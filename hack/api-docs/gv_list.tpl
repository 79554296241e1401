{{- define "gvList" -}}
# API reference

Generated from `api/v1alpha1` by `make generate`. `kubectl explain podippool.spec`
shows the same on a cluster.
{{ range . }}
{{ template "gvDetails" . }}
{{ end }}
{{- end -}}
