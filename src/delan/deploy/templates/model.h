/* {{ name }}: the learned dynamics of a robot with {{ dof }} joints, {{ title }}.
 *
 * Written by delan {{ version }}. Numbers: {{ count }} in {{ real }}, checksum {{ checksum }}.
 *
 * Joints, in the order of all arrays, with the units of q, qd, qdd and tau:
{% for name, kind, units in joints %}
 *   {{ loop.index0 }}: {{ name | one_line }} ({{ kind }}; {{ units | join(", ") }})
{% endfor %}
 *
 * How it was made:
{% for key, value in story.items() %}
 *   {{ key | one_line }}: {{ value | one_line }}
{% else %}
 *   unknown
{% endfor %}
 *
 * No function allocates memory, keeps a state of its own or fails; all may be called from several threads. Outputs may
 * be the same array as inputs. A torque is not checked against the limits of a robot: that is for the caller to do.
 */
#ifndef {{ upper }}_H
#define {{ upper }}_H

#ifdef __cplusplus
extern "C" {
#endif

#define {{ upper }}_DOF {{ dof }}
#define {{ upper }}_CHECKSUM "{{ checksum }}"

{% if stops %}
/* What friction remembers of the way. Pass NULL for `memory` where nothing is known of it. */
{% else %}
/* This model remembers nothing: pass NULL for `memory`. */
{% endif %}
typedef struct {{ name }}_state {
    {{ real }} position[{{ motors }}];
    {{ real }} stretch[{{ [stops, 1] | max }}][{{ motors }}];
} {{ name }}_state;

{{ functions | join("\n\n") }}

#ifdef __cplusplus
}
#endif
#endif
