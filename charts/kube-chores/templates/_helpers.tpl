{{- /*
Print the objects of a file of cronjobs/, with what kustomize adds there. Parameters: root, path, component, more labels if
there are any, and for a file of a job its values as job.
*/}}
{{- define "kube-chores.objects" }}
{{- $namespace := .root.Release.Namespace }}
{{- range splitList "\n---\n" (.root.Files.Get .path) }}
{{- $object := fromYaml . }}
{{- $metadata := $object.metadata }}
{{- if not (regexMatch "^(Cluster|CustomResourceDefinition|Namespace$|PriorityClass|Validating)" $object.kind) }}
{{- if has $metadata.namespace (list nil "kube-chores") }}{{ $_ := set $metadata "namespace" $namespace }}{{ end }}
{{- else if and (hasPrefix "ClusterRole" $object.kind) (hasSuffix "/rbac.yaml" $.path) }}
{{- $_ := set $metadata "name" (trimPrefix "kube-chores-" $metadata.name | print $namespace "-") }}
{{- with $object.roleRef }}{{ $_ := set . "name" $metadata.name }}{{ end }}
{{- end }}
{{- range $object.subjects }}{{ $_ := set . "namespace" $namespace }}{{ end }}
{{- range $object.rules }}
{{- if has "bind" .verbs }}
{{- $_ := set . "resourceNames" (index $.root.Values.jobs "sync-copies" "copies" "roleBindings" "clusterRoles") }}
{{- end }}
{{- end }}
{{- if eq $object.kind "ServiceAccount" }}
{{- $_ := set $object "automountServiceAccountToken" false }}
{{- else if or (has $object.kind (list "CustomResourceDefinition" "Namespace" "PriorityClass" "Secret")) (eq $metadata.name "kube-chores-uninstall") }}
{{- $_ := set $metadata "annotations" (dict "helm.sh/resource-policy" "keep") }}
{{- else if eq $object.kind "CronJob" }}
{{- $object = include "kube-chores.cronjob" (dict "root" $.root "component" $.component "job" $.job "cronjob" $object) | fromYaml }}
{{- end }}
{{- $labels := include "kube-chores.labels" $ | fromYaml }}
{{- with $.labels }}{{ $labels = merge $labels (dict "labels" .) }}{{ end }}
---
{{ toYaml (merge $object (dict "metadata" $labels)) }}
{{- end }}
{{- end }}

{{- define "kube-chores.labels" -}}
labels:
  app.kubernetes.io/name: kube-chores
  app.kubernetes.io/part-of: kube-chores
  {{- with .component }}
  app.kubernetes.io/component: {{ . }}
  {{- end }}
{{- end }}
