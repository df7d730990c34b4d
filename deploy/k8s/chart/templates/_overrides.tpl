{{/* The objects of a file with their overrides. Without overrides the text stays as the file has it. */}}
{{- define "ortoo.render" -}}
{{- $text := include (printf "ortoo.objects.%s" .file) .root }}
{{- if or .root.Values.overrides .root.Values.commonAnnotations }}
{{- range $part := splitList "\n---\n" (printf "\n%s\n" $text) }}
{{- with fromYaml $part }}
---
{{ include "ortoo.overridden" (dict "root" $.root "object" .) | fromJson | toYaml }}
{{ end }}
{{- end }}
{{- else }}
{{- $text }}
{{- end }}
{{- end }}

{{/* Whether an override selects an object: by kind, and by component and name where they are given. */}}
{{- define "ortoo.selects" -}}
{{- $labels := .object.metadata.labels | default dict }}
{{- $component := get $labels "app.kubernetes.io/component" }}
{{- if and (eq .override.kind .object.kind) (or (not .override.component) (eq .override.component $component)) (or (not .override.name) (eq .override.name .object.metadata.name)) }}true{{ end }}
{{- end }}

{{/* An object as JSON, with the common annotations and all overrides that select it. */}}
{{- define "ortoo.overridden" -}}
{{- $object := .object }}
{{- with .root.Values.commonAnnotations }}
{{- $_ := set $object.metadata "annotations" (merge dict ($object.metadata.annotations | default dict) .) }}
{{- end }}
{{- range $override := .root.Values.overrides }}
{{- if include "ortoo.selects" (dict "override" $override "object" $object) }}
{{- include "ortoo.merge" (dict "into" $object "from" (deepCopy ($override.merge | default dict))) }}
{{- range $step := $override.patch }}
{{- $at := printf "override of %s %s: %s %s" $object.kind $object.metadata.name $step.op $step.path }}
{{- if and (ne $step.op "remove") (not (hasKey $step "value")) }}{{ fail (printf "%s: missing value" $at) }}{{ end }}
{{- $object = (include "ortoo.patch" (dict "node" $object "path" (splitList "/" $step.path | rest) "op" $step.op "value" (get $step "value") "at" $at) | fromJson).node }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $object }}
{{- end }}

{{/* Change the map "into" by a JSON merge patch (RFC 7386): maps are merged, null removes, other values replace. */}}
{{- define "ortoo.merge" -}}
{{- range $key, $value := .from }}
{{- $old := get $.into $key }}
{{- if kindIs "invalid" $value }}{{ $_ := unset $.into $key }}
{{- else if and (kindIs "map" $value) (kindIs "map" $old) }}{{ include "ortoo.merge" (dict "into" $old "from" $value) }}
{{- else }}{{ $_ := set $.into $key $value }}
{{- end }}
{{- end }}
{{- end }}

{{/* {"node": the value after one step of a JSON patch (RFC 6902)}; "path" lists the keys from here. */}}
{{- define "ortoo.patch" -}}
{{- $key := first .path | default "" | replace "~1" "/" | replace "~0" "~" }}
{{- $rest := rest .path }}
{{- $node := .node }}
{{- if kindIs "map" $node }}
{{- if and (not (hasKey $node $key)) (or $rest (ne .op "add")) }}{{ fail (printf "%s: there is no %q; expected one of %s" .at $key (keys $node | sortAlpha | join ", ")) }}{{ end }}
{{- if $rest }}{{ $_ := set $node $key (include "ortoo.patch" (dict "node" (get $node $key) "path" $rest "op" .op "value" .value "at" .at) | fromJson).node }}
{{- else if eq .op "remove" }}{{ $_ := unset $node $key }}
{{- else }}{{ $_ := set $node $key .value }}
{{- end }}
{{- else if kindIs "slice" $node }}
{{- $count := len $node }}
{{- $index := ternary $count (int $key) (eq $key "-") }}
{{- if or (not (regexMatch "^(-|[0-9]+)$" $key)) (gt $index $count) (and (eq $index $count) (or $rest (ne .op "add"))) }}{{ fail (printf "%s: there is no %q; expected a number below %d, or - to add at the end" .at $key $count) }}{{ end }}
{{- $changed := list }}
{{- range $n, $one := $node }}
{{- if ne $n $index }}{{ $changed = append $changed $one }}
{{- else if $rest }}{{ $changed = append $changed (include "ortoo.patch" (dict "node" $one "path" $rest "op" $.op "value" $.value "at" $.at) | fromJson).node }}
{{- else if eq $.op "add" }}{{ $changed = concat $changed (list $.value $one) }}
{{- else if eq $.op "replace" }}{{ $changed = append $changed $.value }}
{{- end }}
{{- end }}
{{- if eq $index $count }}{{ $changed = append $changed .value }}{{ end }}
{{- $node = $changed }}
{{- else }}
{{- fail (printf "%s: %q is below a value that is neither a map nor a list" .at $key) }}
{{- end }}
{{- dict "node" $node | toJson }}
{{- end }}
