/* Reads lengths of images that are wrong in as many ways as there is time for. An
 * image lies at the end of memory of its own, so that what reads beyond it is seen
 * (AddressSanitizer). Standard input is images, each behind its length of 8 bytes.
 *
 *   image TIMES */
#include "../remote/remote.h"

static uint64_t state = 88172645463325252u;
static uint64_t chance(uint64_t n) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state % n;
}

static size_t look(const uint8_t *from, size_t n) {
  uint8_t *p = malloc(n ? n : 1); /* nothing after it is ours */
  if (n) memcpy(p, from, n);
  size_t size = yr_image_size(p, n);
  if (size > n) printf("%zu of %zu bytes\n", size, n), exit(1);
  free(p);
  return size;
}

int main(int argc, char **argv) {
  static uint8_t image[1 << 20], changed[1 << 20];
  static const uint64_t odd[] = {0, 1, 3, 63, 64, 65, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1ULL << 32, 1ULL << 63, UINT64_MAX, UINT64_MAX - 63};
  uint64_t n;
  long times = argc > 1 ? atol(argv[1]) : 1000, whole = 0;
  while (fread(&n, 1, 8, stdin) == 8) {
    if (n > sizeof image || fread(image, 1, n, stdin) != n) return 2;
    if (look(image, n) != n) return printf("an image of %llu bytes has %zu\n", (unsigned long long)n, look(image, n)), 1;
    if (look(image, n - 1)) return printf("an image of %llu bytes that is cut off is whole\n", (unsigned long long)n), 1;
    for (long i = 0; i < times; i++) {
      size_t k = chance(4) ? n : chance(n) + 1;
      memcpy(changed, image, k);
      for (uint64_t c = chance(6); c-- > 0;) {
        size_t at = chance(k < 128 || chance(2) ? k : 128), w = 1u << chance(4);
        if (at + w <= k) memcpy(changed + at, odd + chance(sizeof odd / sizeof *odd), w);
        else changed[at] = (uint8_t)chance(256);
      }
      whole += look(changed, k) > 0;
    }
  }
  printf("%ld whole\n", whole);
  return yr_image_size(NULL, 5) || yr_image_size(image, 0) || yr_image_of(NULL, 100) ? 1 : 0;
}
