{{- define "type" -}}
### {{ .Name }}

{{ .Doc }}

{{ if .Members -}}
| Field | Description | Limits |
| --- | --- | --- |
{{ if .GVK -}}
| `apiVersion` _string_ | `{{ .GVK.Group }}/{{ .GVK.Version }}` | |
| `kind` _string_ | `{{ .GVK.Kind }}` | |
{{ end -}}
{{ range .Members -}}
{{- $limits := list -}}
{{- with .Default }}{{ $limits = append $limits (printf "Default: %s" (markdownRenderDefault .)) }}{{ end -}}
{{- range .Validation -}}
{{- if eq . "Required: {}" }}{{ $limits = append $limits "required" -}}
{{- else if not (or (hasPrefix "Optional" .) (hasPrefix "XValidation" .) (hasPrefix "items:" .) (hasPrefix "Type" .)) }}{{ $limits = append $limits . }}{{ end -}}
{{- end -}}
| `{{ .Name }}` _{{ if and (eq (int .Type.Kind) 0) (ne .Type.Name "Duration") }}string{{ else }}{{ markdownRenderType .Type }}{{ end }}_ | {{ template "type_members" . }} | {{ join ", " $limits }} |
{{ end -}}
{{ end -}}
{{- end -}}
