{{- /* Whole seconds, rounded up, of a duration as Ringmere reads it: 90, 500ms, 15s, 10m, 1h, 7d. */ -}}
{{- define "ringmere.seconds" -}}
{{- $text := toString . | trim | lower -}}
{{- if not (regexMatch "^[0-9]+(\\.[0-9]+)?\\s*(ms|s|m|h|d)?$" $text) -}}
{{- fail (printf "settings.drain_grace: %q is no duration like 90, 500ms, 15s, 10m or 1h" $text) -}}
{{- end -}}
{{- $number := regexFind "^[0-9]+(\\.[0-9]+)?" $text | float64 -}}
{{- $unit := regexFind "[a-z]*$" $text -}}
{{- $factor := get (dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 "d" 86400.0) (default "s" $unit) -}}
{{- mulf $number $factor | ceil | int64 -}}
{{- end -}}

{{- /* From the order to end until the last goodbye: the pause in which the pod's address goes, and the drain. */ -}}
{{- define "ringmere.goodbyeSeconds" -}}
{{- $given := get .Values.settings "drain_grace" | toString -}}
{{- $unset := has $given (list "" "<nil>") -}}
{{- $drain := include "ringmere.seconds" (ternary "20s" $given $unset) | int64 -}}
{{- add .Values.preStopSeconds $drain -}}
{{- end -}}

{{- /* Ten seconds more, for requests in flight and the connection to NATS, until the pod must have ended. */ -}}
{{- define "ringmere.terminationGrace" -}}
{{- $needed := include "ringmere.goodbyeSeconds" . | int64 | add 10 -}}
{{- $given := .Values.terminationGracePeriodSeconds | int64 -}}
{{- if and (gt $given 0) (lt $given $needed) -}}
{{- fail (printf "terminationGracePeriodSeconds: %d is too short: preStopSeconds, settings.drain_grace and 10 s to end are %d, or streams are cut instead of told" $given $needed) -}}
{{- end -}}
{{- default $needed $given -}}
{{- end -}}

{{- /* How long a new pod must be ready before the next old one goes: until the one before has said all its goodbyes. */ -}}
{{- define "ringmere.minReady" -}}
{{- default (include "ringmere.goodbyeSeconds" .) (.Values.minReadySeconds | int64) -}}
{{- end -}}
