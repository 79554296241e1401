{{- define "gvDetails" -}}
## {{ .GroupVersionString }}
{{ range .SortedTypes }}
{{- /* Fields describe the values of an enumeration. */ -}}
{{- if and (markdownShouldRenderType .) (or .Members (eq .Name "Duration")) }}
{{ template "type" . }}
{{ end -}}
{{ end }}
{{- end -}}
