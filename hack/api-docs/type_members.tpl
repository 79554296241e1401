{{- define "type_members" -}}
{{- if eq .Name "metadata" -}}
As of every Kubernetes object.
{{- else -}}
{{ markdownRenderFieldDoc .Doc }}
{{- end -}}
{{- end -}}
