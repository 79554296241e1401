{{- /* CEL: two maps are equal but for some keys. dict new, old, and but: a CEL list. */}}
{{- define "policy.sameBut" -}}
{{ .new }}.all(k, k in {{ .but }} || (k in {{ .old }} && {{ .new }}[k] == {{ .old }}[k])) && {{ .old }}.all(k, k in {{ .but }} || k in {{ .new }})
{{- end }}

{{- /* The part of a policy that is the same for all writes of the operator: whose they are, and what is compared. */}}
{{- define "policy.ofOperator" -}}
failurePolicy: Fail
matchConditions:
- name: by-the-operator
  expression: request.userInfo.username == {{ include "policy.operator" . | toJson }}
variables:
- name: meta
  expression: dyn(object).?metadata.orValue({})
- name: oldMeta
  expression: dyn(oldObject).?metadata.orValue({})
- name: spec
  expression: dyn(object).?spec.orValue({})
- name: oldSpec
  expression: dyn(oldObject).?spec.orValue({})
- name: status
  expression: dyn(object).?status.orValue({})
- name: oldStatus
  expression: dyn(oldObject).?status.orValue({})
{{- end }}

{{- define "policy.operator" -}}
system:serviceaccount:{{ include "namespace" . }}:{{ include "serviceAccount" . }}
{{- end }}

{{- /* dict root and name: what puts a policy in force. */}}
{{- define "policy.binding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  {{- include "metadata" . | nindent 2 }}
spec:
  policyName: {{ .name }}
  validationActions: [Deny]
{{- end }}
