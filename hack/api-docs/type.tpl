{{- define "type" -}}
### {{ .Name }}

{{ .Doc }}

{{/* Types that embed EdgeIPs have its fields. */ -}}
{{ if and .Members (ne .Name "EdgeIPs") -}}
| Field | Description | Limits |
| --- | --- | --- |
{{ range .Members -}}
{{- if ne .Name "metadata" -}}
{{- $limits := list -}}
{{- with .Default }}{{ $limits = append $limits (printf "Default: %s" (markdownRenderDefault .)) }}{{ end -}}
{{- range .Validation -}}
{{- if eq . "Required: {}" }}{{ $limits = append $limits "required" -}}
{{- else if not (or (hasPrefix "Optional" .) (hasPrefix "XValidation" .) (hasPrefix "items:" .) (hasPrefix "Type" .)) }}{{ $limits = append $limits (replace "1e+06" "1000000" .) }}{{ end -}}
{{- end -}}
| `{{ .Name }}` _{{ if and (eq (int .Type.Kind) 0) (ne .Type.Name "Duration") }}string{{ else if eq .Type.Name "IntOrString" }}integer or string{{ else }}{{ markdownRenderType .Type }}{{ end }}_ | {{ markdownRenderFieldDoc (regexReplaceAll "([^\n])\n([^\n])" .Doc "${1} ${2}") }} | {{ join ", " $limits }} |
{{ end -}}
{{ end -}}
{{ end -}}
{{- end -}}
