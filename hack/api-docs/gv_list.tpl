{{- define "gvList" -}}
# API reference

Generated from `pkg/crd/v1alpha1` by `make generate`. `kubectl explain podippool.spec`
shows the same on a cluster. What the API server refuses, and how to fix it, is
said in its answer.
{{ range . }}
{{ template "gvDetails" . }}
{{ end }}
{{- end -}}
