{{- define "metricsService" -}}
{{ include "name" . }}-metrics
{{- end }}

{{- /* What both monitors say of the endpoint: dict root, monitor. */}}
{{- define "metricsEndpoint" -}}
port: metrics
path: /metrics
scheme: {{ ternary "https" "http" .root.Values.metrics.secure }}
{{- with .monitor.interval }}
interval: {{ . }}
{{- end }}
{{- with .monitor.scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- if .monitor.tlsConfig }}
tlsConfig:
  {{- toYaml .monitor.tlsConfig | nindent 2 }}
{{- else if and .root.Values.metrics.secure .root.Values.metrics.certSecret }}
tlsConfig:
  serverName: {{ include "metricsService" .root }}.{{ include "namespace" .root }}.svc
  ca:
    secret: {name: {{ .root.Values.metrics.certSecret }}, key: ca.crt}
{{- else if .root.Values.metrics.secure }}
tlsConfig:
  # The certificate is self-signed, generated at startup.
  insecureSkipVerify: true
{{- end }}
{{- with .monitor.authorization }}
authorization:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .monitor.relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .monitor.metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .monitor.endpoint }}
{{ toYaml . }}
{{- end }}
{{- end }}
