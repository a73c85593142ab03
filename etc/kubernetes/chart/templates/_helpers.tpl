{{- /* The kind of the operator's rights: for all namespaces, or for that of the release. */ -}}
{{- define "flux-ensemble.role" -}}
{{ if eq .Values.rbac.scope "namespace" }}Role{{ else }}ClusterRole{{ end }}
{{- end }}
