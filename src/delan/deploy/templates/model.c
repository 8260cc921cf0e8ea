/* See {{ name }}.h. */
#include "{{ name }}.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef {{ real }} real;

{{ macros }}
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wunused-function" /* kernels serve many models, of which each needs a part */
#define UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#define UNROLL _Pragma("GCC unroll 32")
#else
#define UNROLL
#endif
#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif
{{ tables }}

{{ constants }}
{{ kernels -}}
