// Vectors of eight and of sixteen fp32, and the few operations on them that the loops are written in.
//
// Why not let the compiler vectorise? It may then choose the order of a sum by the shape of the loop around it, and the
// same row would get other bits in another batch. Here the order is written down, and every operation is one that IEEE
// 754 defines (compile with -ffp-contract=off and without -ffast-math): results are the same on every machine; the
// width of its registers changes only the speed. What differs between processors stands in this file alone.
//
// A file that includes this one is compiled once for each level of a processor family, in a namespace of that name
// (PHLOEM_LEVEL). It uses no templates of the standard library: a linker keeps one copy of these, for whichever level.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#ifndef PHLOEM_LEVEL
#define PHLOEM_LEVEL native
#endif

namespace phloem::kernels::PHLOEM_LEVEL {

typedef float F4 __attribute__((vector_size(16)));
typedef float F8 __attribute__((vector_size(32)));
typedef int32_t I8 __attribute__((vector_size(32)));
typedef uint32_t U8 __attribute__((vector_size(32)));
typedef int16_t Shorts8 __attribute__((vector_size(16)));
typedef int16_t Shorts16 __attribute__((vector_size(32)));
typedef int8_t Bytes8 __attribute__((vector_size(8)));
typedef int8_t Bytes16 __attribute__((vector_size(16)));
typedef uint8_t Unsigned8 __attribute__((vector_size(8)));

constexpr float INFINITE = __builtin_inff();
constexpr float LOG2_E = 1.4426950408889634f;

// A value of any type from any address, or to it.
template <class T>
[[gnu::always_inline]] inline T load_as(const void* from) {
  T value;
  memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
[[gnu::always_inline]] inline void store_as(void* to, T value) {
  memcpy(to, &value, sizeof value);
}

template <class T>
[[gnu::always_inline]] inline T smaller_of(T a, T b) {
  return b < a ? b : a;
}

template <class T>
[[gnu::always_inline]] inline T larger_of(T a, T b) {
  return a < b ? b : a;
}

[[gnu::always_inline]] inline void ask_for_line(const void* address) { __builtin_prefetch(address, 0, 3); }

// Eight lanes --------------------------------------------------------------------------------------------------------

[[gnu::always_inline]] inline F8 load8(const float* from) { return load_as<F8>(from); }
[[gnu::always_inline]] inline void store8(float* to, F8 v) { store_as(to, v); }
[[gnu::always_inline]] inline F8 splat8(float x) { return F8{x, x, x, x, x, x, x, x}; }
[[gnu::always_inline]] inline I8 splat8(int32_t x) { return I8{x, x, x, x, x, x, x, x}; }

// The lanes of a (0 to 7) and b (8 to 15) that are listed.
template <int... LANES>
[[gnu::always_inline]] inline F8 pick(F8 a, F8 b) {
#if __has_builtin(__builtin_shufflevector)
  return __builtin_shufflevector(a, b, LANES...);
#else
  return __builtin_shuffle(a, b, I8{LANES...});
#endif
}

// a * b + c, rounded once.
[[gnu::always_inline]] inline F8 fma(F8 a, F8 b, F8 c) {
#if defined(__FMA__)
  return (F8)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
  float32x4x2_t x, y, z;
  memcpy(&x, &a, sizeof x), memcpy(&y, &b, sizeof y), memcpy(&z, &c, sizeof z);
  z.val[0] = vfmaq_f32(z.val[0], x.val[0], y.val[0]), z.val[1] = vfmaq_f32(z.val[1], x.val[1], y.val[1]);
  return load_as<F8>(&z);
#else
  for (int i = 0; i < 8; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
#endif
}

// The same, loaded once: a compiler would read it from memory again for every operation that it is part of.
[[gnu::always_inline]] inline F8 in_register(F8 v) {
#if defined(__AVX__)
  asm("" : "+x"(v));
#endif
  return v;
}

// Four dims of two keys side by side, or one four twice.
[[gnu::always_inline]] inline F8 join(F4 low, F4 high) {
#if defined(__AVX__)
  return (F8)_mm256_insertf128_ps(_mm256_castps128_ps256((__m128)low), (__m128)high, 1);
#else
  return F8{low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]};
#endif
}

// Of int16 in pairs: lane i is a[2i] * b[2i] + a[2i + 1] * b[2i + 1], in int32.
[[gnu::always_inline]] inline I8 sum_pairs(I8 a, I8 b) {
#if defined(__AVX2__)
  return (I8)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
  return ((a << 16) >> 16) * ((b << 16) >> 16) + (a >> 16) * (b >> 16);
#endif
}

[[gnu::always_inline]] inline float as_float(int32_t bits) { return __builtin_bit_cast(float, bits); }
[[gnu::always_inline]] inline int32_t as_int(float number) { return __builtin_bit_cast(int32_t, number); }

// Lane by lane the larger one; b where either is NaN.
[[gnu::always_inline]] inline F8 larger(F8 a, F8 b) { return a > b ? a : b; }
[[gnu::always_inline]] inline F8 to_floats(I8 v) { return __builtin_convertvector(v, F8); }
[[gnu::always_inline]] inline I8 to_ints(F8 v) { return __builtin_convertvector(v, I8); }

// The nearest whole numbers, ties to even, of |v| below 2^22.
[[gnu::always_inline]] inline I8 round_to_ints(F8 v) {
  const F8 middle = splat8(12582912.0f);  // 1.5 * 2^23: no bits are left for a fraction
  return to_ints((v + middle) - middle);
}

// 2^v to about 1 ulp; results below 2^-126 are 0, v must stay below 128. On [-1/2, 1/2] a minimax polynomial of degree
// 6.
[[gnu::always_inline]] inline F8 exp2(F8 v) {
  const F8 shift =
      splat8(1.5f * 8388608.0f + 127.0f);  // leaves the nearest whole number, plus an exponent's bias, in the low bits
  v = larger(v, splat8(-127.0f));
  const F8 shifted = v + shift;
  const F8 rest = v - (shifted - shift);
  F8 y = splat8(0.000154003404f);
  y = fma(y, rest, splat8(0.00133952707052f));
  y = fma(y, rest, splat8(0.00961847137660f));
  y = fma(y, rest, splat8(0.0555032879114f));
  y = fma(y, rest, splat8(0.240226462484f));
  y = fma(y, rest, splat8(0.693147182464f));
  y = fma(y, rest, splat8(1.0f));
  return y * (F8)((I8)shifted << 23);
}

// 1 - 2 / (exp(2 v) + 1), |v| cut at 20, where tanh is 1; absolute error about 2e-7.
[[gnu::always_inline]] inline F8 tanh(F8 v) {
  const F8 one = splat8(1.0f), low = splat8(-20.0f);
  v = larger(v, low);
  v = larger(-v, low);  // now of the other sign, and cut from both sides
  return one - splat8(2.0f) / (exp2(v * splat8(-2.0f * LOG2_E)) + one);
}

// 1 / (1 + exp(-v)); v below -87 gives what -87 gives, 1.6e-38.
[[gnu::always_inline]] inline F8 sigmoid(F8 v) {
  const F8 one = splat8(1.0f);
  return one / (one + exp2(larger(v, splat8(-87.0f)) * splat8(-LOG2_E)));
}

// Lanes begin to end - 1 of v, -inf in the rest.
[[gnu::always_inline]] inline F8 keep(F8 v, int32_t begin, int32_t end) {
  const I8 lane = {0, 1, 2, 3, 4, 5, 6, 7};
  return ((lane >= splat8(begin)) & (lane < splat8(end))) ? v : splat8(-INFINITE);
}

// Lane i of v where bit i of `bits` is set, -inf in the rest.
[[gnu::always_inline]] inline F8 keep_bits(F8 v, int32_t bits) {
  const I8 lane = {1, 2, 4, 8, 16, 32, 64, 128};
  return ((splat8(bits) & lane) != 0) ? v : splat8(-INFINITE);
}

// The sum of the lanes: (i, i + 4), then (i, i + 2), then (0, 1).
[[gnu::always_inline]] inline float total(F8 v) {
  v = v + pick<4, 5, 6, 7, 4, 5, 6, 7>(v, v);
  v = v + pick<2, 3, 2, 3, 2, 3, 2, 3>(v, v);
  return v[0] + v[1];
}

// The largest of the lanes.
[[gnu::always_inline]] inline float largest(F8 v) {
  v = larger(v, pick<4, 5, 6, 7, 4, 5, 6, 7>(v, v));
  v = larger(v, pick<2, 3, 2, 3, 2, 3, 2, 3>(v, v));
  return v[0] > v[1] ? v[0] : v[1];
}

// Eight bytes, widened.
[[gnu::always_inline]] inline I8 load_signed8(const void* from) {
#if defined(__AVX2__)
  return (I8)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)from));
#else
  return __builtin_convertvector(load_as<Bytes8>(from), I8);
#endif
}

[[gnu::always_inline]] inline I8 load_unsigned8(const void* from) {
#if defined(__AVX2__)
  return (I8)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)from));
#else
  return __builtin_convertvector(load_as<Unsigned8>(from), I8);
#endif
}

// Sixteen int8 as int16.
[[gnu::always_inline]] inline I8 load_signed_pairs8(const void* from) {
#if defined(__AVX2__)
  return (I8)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)from));
#else
  return (I8) __builtin_convertvector(load_as<Bytes16>(from), Shorts16);
#endif
}

[[gnu::always_inline]] inline void store_bytes(void* to, I8 v) { store_as(to, __builtin_convertvector(v, Bytes8)); }
[[gnu::always_inline]] inline void store_shorts(void* to, I8 v) { store_as(to, __builtin_convertvector(v, Shorts8)); }

// The numbers in the lowest bytes of the lanes, which are e4m3; NaN is not known and comes out as 480.
[[gnu::always_inline]] inline F8 from_fp8(I8 bits) {
  // the fields of e4m3 in those of fp32, whose exponents count from 120 further down; subnormals come out as well
  const I8 sign = (bits & 0x80) << 24, rest = (bits & 0x7F) << 20;
  return (F8)(sign | rest) * splat8(0x1p120f);
}

// Numbers of at most 448 as e4m3, rounded to nearest, ties to even.
[[gnu::always_inline]] inline I8 to_fp8(F8 v) {
  const I8 size = (I8)v & 0x7FFFFFFF;
  const I8 sign = (I8)(((U8)v & 0x80000000u) >> 24);
  const I8 odd = (size >> 20) & 1;
  const I8 normal = ((size + odd + 0x7FFFF) >> 20) - (120 << 3);
  const I8 small = round_to_ints((F8)size * splat8(512.0f));  // subnormals are multiples of 2^-9
  return sign | (size < 0x3C800000 ? small : normal);         // below 2^-6
}

// Sixteen lanes: a panel's. One register of AVX-512, or two vectors of eight ------------------------------------------

#if defined(__AVX512F__) && defined(__AVX512BW__)
constexpr bool HAS_512 = true;
typedef float F16 __attribute__((vector_size(64)));
typedef int32_t I16 __attribute__((vector_size(64)));
typedef uint32_t U16 __attribute__((vector_size(64)));

[[gnu::always_inline]] inline F16 load16(const void* from) { return load_as<F16>(from); }
[[gnu::always_inline]] inline void store16(void* to, F16 v) { store_as(to, v); }
[[gnu::always_inline]] inline F16 splat16(float x) { return (F16)_mm512_set1_ps(x); }
[[gnu::always_inline]] inline I16 splat16(int32_t x) { return (I16)_mm512_set1_epi32(x); }
[[gnu::always_inline]] inline I16 load_ints16(const void* from) { return load_as<I16>(from); }
[[gnu::always_inline]] inline F16 fma(F16 a, F16 b, F16 c) {
  return (F16)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
[[gnu::always_inline]] inline F16 to_floats(I16 v) { return __builtin_convertvector(v, F16); }
[[gnu::always_inline]] inline F16 as_floats(I16 v) { return (F16)v; }
[[gnu::always_inline]] inline I16 shift_down(I16 v, int bits) { return (I16)((U16)v >> bits); }
[[gnu::always_inline]] inline I16 either(I16 is_set, I16 a, I16 b) { return is_set != 0 ? a : b; }
[[gnu::always_inline]] inline I16 sum_pairs(I16 a, I16 b) { return (I16)_mm512_madd_epi16((__m512i)a, (__m512i)b); }
[[gnu::always_inline]] inline I16 shift_shorts_up(I16 v) { return (I16)_mm512_slli_epi16((__m512i)v, 8); }
[[gnu::always_inline]] inline I16 shift_shorts_down(I16 v) { return (I16)_mm512_srai_epi16((__m512i)v, 8); }
[[gnu::always_inline]] inline I16 load_signed16(const void* from) {
  return (I16)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)from));
}
[[gnu::always_inline]] inline I16 load_unsigned16(const void* from) {
  return (I16)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)from));
}
[[gnu::always_inline]] inline I16 load_signed_pairs16(const void* from) {
  return (I16)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)from));
}
// Lanes of bf16 in words, each paired with the one eight further on, as fp32.
[[gnu::always_inline]] inline F16 load_short16(const void* from) {
  const __m512i words = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i*)from));
  const __m512i low = _mm512_slli_epi32(words, 16);
  return (F16)_mm512_mask_and_epi32(low, 0xFF00, words, _mm512_set1_epi32((int)0xFFFF0000u));
}
// The number of a table that the lowest four bits of each lane name.
[[gnu::always_inline]] inline F16 look_up(F16 table, I16 places) {
  return (F16)_mm512_permutexvar_ps((__m512i)places, (__m512)table);
}
#else
constexpr bool HAS_512 = false;
template <class V>
struct Two {
  V low, high;
};
using F16 = Two<F8>;
using I16 = Two<I8>;

template <class V>
[[gnu::always_inline]] inline Two<V> operator+(Two<V> a, Two<V> b) {
  return {a.low + b.low, a.high + b.high};
}
template <class V>
[[gnu::always_inline]] inline Two<V> operator-(Two<V> a, Two<V> b) {
  return {a.low - b.low, a.high - b.high};
}
template <class V>
[[gnu::always_inline]] inline Two<V> operator*(Two<V> a, Two<V> b) {
  return {a.low * b.low, a.high * b.high};
}
[[gnu::always_inline]] inline I16 operator|(I16 a, I16 b) { return {a.low | b.low, a.high | b.high}; }
[[gnu::always_inline]] inline I16 operator&(I16 a, int32_t b) { return {a.low & b, a.high & b}; }
[[gnu::always_inline]] inline I16 operator<<(I16 a, I16 b) { return {a.low << b.low, a.high << b.high}; }
[[gnu::always_inline]] inline I16 operator<<(I16 a, int bits) { return {a.low << bits, a.high << bits}; }
[[gnu::always_inline]] inline I16 operator>>(I16 a, int bits) { return {a.low >> bits, a.high >> bits}; }

[[gnu::always_inline]] inline F16 load16(const void* from) {
  return {load_as<F8>(from), load_as<F8>((const char*)from + 32)};
}
[[gnu::always_inline]] inline void store16(void* to, F16 v) { store_as(to, v.low), store_as((char*)to + 32, v.high); }
[[gnu::always_inline]] inline F16 splat16(float x) { return {splat8(x), splat8(x)}; }
[[gnu::always_inline]] inline I16 splat16(int32_t x) { return {splat8(x), splat8(x)}; }
[[gnu::always_inline]] inline I16 load_ints16(const void* from) {
  return {load_as<I8>(from), load_as<I8>((const char*)from + 32)};
}
[[gnu::always_inline]] inline F16 fma(F16 a, F16 b, F16 c) {
  return {fma(a.low, b.low, c.low), fma(a.high, b.high, c.high)};
}
[[gnu::always_inline]] inline F16 to_floats(I16 v) { return {to_floats(v.low), to_floats(v.high)}; }
[[gnu::always_inline]] inline F16 as_floats(I16 v) { return {(F8)v.low, (F8)v.high}; }
[[gnu::always_inline]] inline I16 shift_down(I16 v, int bits) {
  return {(I8)((U8)v.low >> bits), (I8)((U8)v.high >> bits)};
}
[[gnu::always_inline]] inline I16 either(I16 is_set, I16 a, I16 b) {
  return {is_set.low != 0 ? a.low : b.low, is_set.high != 0 ? a.high : b.high};
}
[[gnu::always_inline]] inline I16 sum_pairs(I16 a, I16 b) {
  return {sum_pairs(a.low, b.low), sum_pairs(a.high, b.high)};
}
[[gnu::always_inline]] inline I16 shift_shorts_up(I16 v) {
  return {(I8)((Shorts16)v.low << 8), (I8)((Shorts16)v.high << 8)};
}
[[gnu::always_inline]] inline I16 shift_shorts_down(I16 v) {
  return {(I8)((Shorts16)v.low >> 8), (I8)((Shorts16)v.high >> 8)};
}
[[gnu::always_inline]] inline I16 load_signed16(const void* from) {
  return {load_signed8(from), load_signed8((const char*)from + 8)};
}
[[gnu::always_inline]] inline I16 load_unsigned16(const void* from) {
  return {load_unsigned8(from), load_unsigned8((const char*)from + 8)};
}
[[gnu::always_inline]] inline I16 load_signed_pairs16(const void* from) {
  return {load_signed_pairs8(from), load_signed_pairs8((const char*)from + 16)};
}
// Lanes of bf16 in words, each paired with the one eight further on, as fp32.
[[gnu::always_inline]] inline F16 load_short16(const void* from) {
  const U8 words = load_as<U8>(from);
  return {(F8)(words << 16), (F8)(words & 0xFFFF0000u)};
}
#endif

// Memory of one call
// ---------------------------------------------------------------------------------------------------

// Numbers that a call needs for itself, at a multiple of 64 bytes; contents undefined.
template <class T>
struct Scratch {
  explicit Scratch(int64_t size) : memory(__builtin_malloc(size * sizeof(T) + 64)) {
    if (!memory) throw std::bad_alloc();
    at = (T*)(((uintptr_t)memory + 63) & ~(uintptr_t)63);
  }
  ~Scratch() { __builtin_free(memory); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* at;
  void* memory;
};

}  // namespace phloem::kernels::PHLOEM_LEVEL
