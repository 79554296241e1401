{{- define "gvDetails" -}}
## {{ .GroupVersionString }}
{{ range .SortedTypes }}
{{ template "type" . }}
{{ end }}
{{- end -}}
