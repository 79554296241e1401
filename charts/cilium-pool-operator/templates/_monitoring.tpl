{{- define "metricsService" -}}
{{ include "name" . }}-metrics
{{- end }}

{{- /* What both monitors say of the endpoint: dict root, monitor. */}}
{{- define "metricsEndpoint" -}}
port: metrics
path: /metrics
scheme: {{ ternary "https" "http" .root.Values.metrics.secure }}
{{- if or .monitor.endpoint.tlsConfig (not .root.Values.metrics.secure) }}
{{- else if .root.Values.metrics.certSecret }}
tlsConfig:
  serverName: {{ include "metricsService" .root }}.{{ include "namespace" .root }}.svc
  ca:
    secret: {name: {{ .root.Values.metrics.certSecret }}, key: ca.crt}
{{- else }}
tlsConfig:
  # The certificate is self-signed, generated at startup.
  insecureSkipVerify: true
{{- end }}
{{- with .monitor.endpoint }}
{{ toYaml . }}
{{- end }}
{{- end }}
