{{- /* Text of a setting: numbers without an exponent, lists with commas. */ -}}
{{- define "ringmere.settingText" -}}
{{- if kindIs "slice" . -}}
{{- join "," . -}}
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- int64 . -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end -}}

{{- define "ringmere.authKey" -}}
{{- $auth := .Values.nats.auth -}}
{{- default (get (dict "creds" "nats.creds" "nkey" "seed" "password" "password" "token" "token") $auth.kind) $auth.key -}}
{{- end -}}

{{- define "ringmere.env" -}}
{{- $auth := .Values.nats.auth -}}
{{- $tls := .Values.nats.tls -}}
- name: RINGMERE_LISTEN
  value: {{ printf "%s:%d" .Values.bind (int64 .Values.port) | quote }}
- name: RINGMERE_NATS_URL
  value: {{ .Values.nats.url | quote }}
{{- if $auth.secret }}
{{- if has $auth.kind (list "creds" "nkey") }}
- name: RINGMERE_NATS_{{ upper $auth.kind }}
  value: /etc/ringmere/nats/{{ include "ringmere.authKey" . }}
{{- else }}
{{- if eq $auth.kind "password" }}
- name: RINGMERE_NATS_USER
  value: {{ required "nats.auth.user: a password needs the name of its user" $auth.user | quote }}
{{- end }}
- name: RINGMERE_NATS_{{ upper $auth.kind }}
  valueFrom:
    secretKeyRef:
      name: {{ quote $auth.secret }}
      key: {{ include "ringmere.authKey" . | quote }}
{{- end }}
{{- end }}
{{- if $tls.secret }}
{{- range $part := list "ca" "cert" "key" }}
{{- with get $tls $part }}
- name: RINGMERE_NATS_TLS_{{ upper $part }}
  value: /etc/ringmere/nats-tls/{{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $value := .Values.settings }}
{{- if not (kindIs "invalid" $value) }}
- name: RINGMERE_{{ upper $name }}
  value: {{ include "ringmere.settingText" $value | quote }}
{{- end }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* A Secret is mounted when something in it is a file; 0440 is for the group of the pod. */ -}}
{{- define "ringmere.volumes" -}}
{{- $auth := .Values.nats.auth -}}
{{- $tls := .Values.nats.tls -}}
{{- if and $auth.secret (has $auth.kind (list "creds" "nkey")) }}
- name: nats
  secret:
    secretName: {{ quote $auth.secret }}
    defaultMode: 0440
    items:
      - { key: {{ include "ringmere.authKey" . | quote }}, path: {{ include "ringmere.authKey" . | quote }} }
{{- end }}
{{- if $tls.secret }}
- name: nats-tls
  secret:
    secretName: {{ quote $tls.secret }}
    defaultMode: 0440
    items:
      {{- range $file := compact (list $tls.ca $tls.cert $tls.key) }}
      - { key: {{ quote $file }}, path: {{ quote $file }} }
      {{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "ringmere.volumeMounts" -}}
{{- $auth := .Values.nats.auth -}}
{{- if and $auth.secret (has $auth.kind (list "creds" "nkey")) }}
- { name: nats, mountPath: /etc/ringmere/nats, readOnly: true }
{{- end }}
{{- if .Values.nats.tls.secret }}
- { name: nats-tls, mountPath: /etc/ringmere/nats-tls, readOnly: true }
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "ringmere.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "ringmere.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}
