{{- define "type" -}}
{{- if markdownShouldRenderType . -}}
### {{ .Name }}

{{ .Doc }}

{{ if .References -}}
Appears in: {{ range $i, $ref := .SortedReferences }}{{ if $i }}, {{ end }}{{ markdownRenderTypeLink $ref }}{{ end }}

{{ end -}}
{{ if .Members -}}
| Field | Description | Default | Limits |
| --- | --- | --- | --- |
{{ if .GVK -}}
| `apiVersion` _string_ | `{{ .GVK.Group }}/{{ .GVK.Version }}` | | |
| `kind` _string_ | `{{ .GVK.Kind }}` | | |
{{ end -}}
{{ range .Members -}}
| `{{ .Name }}` _{{ markdownRenderType .Type }}_ | {{ template "type_members" . }} | {{ markdownRenderDefault .Default }} | {{ range .Validation }}{{ if eq . "Required: {}" }}required<br />{{ else if not (or (hasPrefix "Optional" .) (hasPrefix "XValidation" .) (hasPrefix "items:" .) (hasPrefix "Type" .)) }}{{ . }}<br />{{ end }}{{ end }} |
{{ end -}}
{{ end -}}
{{- end -}}
{{- end -}}
