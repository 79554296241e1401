{{- /* CEL: two maps are equal but for some keys. dict new, old, and but: a CEL list. */}}
{{- define "policy.sameBut" -}}
{{ .new }}.all(k, k in {{ .but }} || (k in {{ .old }} && {{ .new }}[k] == {{ .old }}[k])) && {{ .old }}.all(k, k in {{ .but }} || k in {{ .new }})
{{- end }}

{{- /*
CEL: labels or annotations are as they were, but for some keys and new ones. Another's mutating webhook or policy may have
added these: a policy sees the merged object, not the operator's change. The prefixes are those of labels that a kubelet may
not set, and Cilium's and ours. dict new, old, and but: a CEL list.
*/}}
{{- define "policy.added" -}}
{{ .new }}.all(k, k in {{ .but }} || (k in {{ .old }} ? {{ .new }}[k] == {{ .old }}[k] : !k.matches("^([^/]*[.])?(kubernetes|k8s|cilium|cilium-pool)[.]io/"))) &&
{{ .old }}.all(k, k in {{ .but }} || k in {{ .new }})
{{- end }}

{{- /* CEL: metadata is as it was, but for what others add. dict but: a CEL list of annotations. */}}
{{- define "policy.sameMeta" -}}
["finalizers", "ownerReferences"].all(k, variables.meta[?k] == variables.oldMeta[?k]) &&
{{ include "policy.added" (dict "new" "variables.labels" "old" "variables.oldLabels" "but" "[]") }} &&
{{ include "policy.added" (dict "new" "variables.annotations" "old" "variables.oldAnnotations" "but" .but) }}
{{- end }}

{{- /* The end of a refusal. */}}
{{- define "policy.orOther" -}}
If it did not, a mutating webhook or policy did. Exempt the operator's ServiceAccount from that one.
{{- end }}

{{- /* The part of a policy that is the same for all writes of the operator: whose they are, and what is compared. */}}
{{- define "policy.ofOperator" -}}
{{ include "policy.ofAccount" (dict "name" "by-the-operator" "account" (include "policy.operator" .)) }}
{{- end }}

{{- /* dict name, account: the same for a ServiceAccount's writes. */}}
{{- define "policy.ofAccount" -}}
failurePolicy: Fail
matchConditions:
- name: {{ .name }}
  expression: request.userInfo.username == {{ .account | toJson }}
variables:
- name: meta
  expression: dyn(object).?metadata.orValue({})
- name: oldMeta
  expression: dyn(oldObject).?metadata.orValue({})
- name: labels
  expression: variables.meta.?labels.orValue({})
- name: oldLabels
  expression: variables.oldMeta.?labels.orValue({})
- name: annotations
  expression: variables.meta.?annotations.orValue({})
- name: oldAnnotations
  expression: variables.oldMeta.?annotations.orValue({})
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

{{- /* dict root, name and action ("": Deny): what puts a policy in force. */}}
{{- define "policy.binding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  {{- include "metadata" . | nindent 2 }}
spec:
  policyName: {{ .name }}
  validationActions: [{{ .action | default "Deny" }}]
{{- end }}
