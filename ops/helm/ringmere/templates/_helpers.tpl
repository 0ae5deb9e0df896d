{{- define "ringmere.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "ringmere.fullname" -}}
{{- $name := include "ringmere.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "ringmere.instanceLabels" -}}
app.kubernetes.io/name: {{ include "ringmere.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* What Service, Deployment, PDB and the rest select: the gateways, and not the pod of `helm test`. */ -}}
{{- define "ringmere.selectorLabels" -}}
{{ include "ringmere.instanceLabels" . }}
app.kubernetes.io/component: gateway
{{- end -}}

{{- define "ringmere.doctorLabels" -}}
{{ include "ringmere.instanceLabels" . }}
app.kubernetes.io/component: doctor
{{- end -}}

{{- define "ringmere.commonLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "ringmere.labels" -}}
{{ include "ringmere.selectorLabels" . }}
{{ include "ringmere.commonLabels" . }}
{{- end -}}

{{- define "ringmere.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "ringmere.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "ringmere.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
