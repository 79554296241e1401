{{- define "metricsService" -}}
{{ include "name" . }}-metrics
{{- end }}

{{- /* What both monitors say of the endpoint: dict root, monitor. */}}
{{- define "metricsEndpoint" -}}
port: metrics
path: /metrics
scheme: {{ ternary "https" "http" .root.Values.metrics.secure }}
{{- if and .root.Values.metrics.secure (not .monitor.endpoint.tlsConfig) }}
tlsConfig:
  {{- with .root.Values.metrics.certSecret }}
  serverName: {{ include "metricsService" $.root }}.{{ include "namespace" $.root }}.svc
  ca:
    secret: {name: {{ . }}, key: ca.crt}
  {{- else }}
  # The certificate is self-signed, generated at startup.
  insecureSkipVerify: true
  {{- end }}
{{- end }}
{{- with .monitor.endpoint }}
{{ toYaml . }}
{{- end }}
{{- end }}
