{{- /* The way to each NATS server and to DNS. An address without a port has NATS's own. */ -}}
{{- define "ringmere.egress" -}}
- ports:
    {{- $ports := list }}
    {{- range splitList "," .Values.nats.url }}
    {{- $port := regexFind ":[0-9]+/?$" (trim .) | trimPrefix ":" | trimSuffix "/" }}
    {{- $ports = append $ports (default "4222" $port) }}
    {{- end }}
    {{- range uniq $ports }}
    - { port: {{ . }}, protocol: TCP }
    {{- end }}
  {{- with .Values.networkPolicy.nats }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
- ports:
    - { port: 53, protocol: UDP }
    - { port: 53, protocol: TCP }
  {{- with .Values.networkPolicy.dns }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- with .Values.networkPolicy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end -}}
