{{- /*
Print a CronJob of cronjobs/ with the fields of base/cronjob.yaml, and with the values of its job. If a field is set in
several places, the values win, then base/cronjob.yaml. Parameters: root, component, job, cronjob.
*/}}
{{- define "kube-chores.cronjob" }}
{{- $base := .root.Files.Get "cronjobs/base/cronjob.yaml" | replace "JOB-settings" (print .component "-settings") | fromYaml }}
{{- $own := first .cronjob.spec.jobTemplate.spec.template.spec.containers }}
{{- $shared := first $base.spec.jobTemplate.spec.template.spec.containers }}
{{- $values := include "kube-chores.container" . | fromYaml }}
{{- $containers := list (mergeOverwrite (omit $own "resources") $shared $values) }}
{{- $values = include "kube-chores.spec" . | fromYaml }}
{{- $cronjob := mergeOverwrite .cronjob (omit $base "metadata") $values }}
{{- $_ := set $cronjob.spec.jobTemplate.spec.template.spec "containers" $containers }}
{{- toYaml $cronjob }}
{{- end }}

{{- define "kube-chores.container" }}
{{- $own := first .cronjob.spec.jobTemplate.spec.template.spec.containers }}
{{- $image := .root.Values.image }}
{{- if $image.digest }}
image: {{ print $image.repository "@" $image.digest | quote }}
{{- else }}
image: {{ print $image.repository ":" (default .root.Chart.AppVersion $image.tag) | quote }}
{{- end }}
{{- with $image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- $argo := ternary (list "--argo-rollouts") list (eq true .job.argoRollouts) }}
{{- $images := ternary (list (printf "--images=%v" .job.images)) list (gt (int .job.images) 0) }}
args: {{ concat $own.args $argo $images .job.flags | toJson }}
{{- with .job.clusters }}
env: {{ concat (list (dict "name" "KUBE_CHORES_CLUSTERS" "value" .)) (rest $own.env) | toJson }}
{{- end }}
resources: {{ toJson .job.resources }}
{{- end }}

{{- define "kube-chores.spec" }}
spec:
  {{- if hasSuffix "-verify" .cronjob.metadata.name }}
  schedule: {{ quote .job.verifySchedule }}
  {{- else }}
  schedule: {{ quote .job.schedule }}
  {{- end }}
  {{- if .job.suspend }}
  suspend: true
  {{- end }}
  jobTemplate:
    metadata:
      {{- include "kube-chores.labels" . | nindent 6 }}
    spec:
      template:
        metadata:
          {{- include "kube-chores.labels" . | nindent 10 }}
        spec:
          serviceAccountName: {{ .component }}
          {{- with .root.Values.image.pullSecrets }}
          imagePullSecrets:
            {{- range . }}
            - name: {{ quote . }}
            {{- end }}
          {{- end }}
          nodeSelector: {{ toJson .root.Values.nodeSelector }}
          {{- with .root.Values.tolerations }}
          tolerations: {{ toJson . }}
          {{- end }}
          {{- with .root.Values.priorityClassName }}
          priorityClassName: {{ quote . }}
          {{- end }}
{{- end }}
