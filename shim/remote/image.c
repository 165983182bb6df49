/* Images of code come to the driver by their address only. How long one is says
 * its beginning: that of an ELF file (cubin), of a fat binary, or of text (PTX),
 * which a 0 ends. The program is believed, as the driver believes it, but nothing
 * beyond what its headers say is read, nor beyond the limit. */
#include "remote.h"

enum { ELF_HEADER = 64, FAT_HEADER = 16, WRAPPER = 24 };
static const char fatMagic[] = "\x50\xED\x55\xBA", wrapperMagic[] = "\xB1\x43\x62\x46";
static const size_t most = (size_t)4 << 30;

static uint64_t number(const uint8_t *p, size_t n) {
  uint64_t v = 0;
  memcpy(&v, p, n); /* these files are little-endian, as the machines are that read them */
  return v;
}

/* begins looks no further than a text goes. */
static bool begins(const void *p, const char *magic) { return !strncmp(p, magic, 4); }

static void end_at(size_t *end, uint64_t offset, uint64_t n) {
  if (offset <= most && n <= most && offset + n > *end) *end = (size_t)(offset + n);
}

/* elf is as long as its last table, section or segment. */
static size_t elf(const uint8_t *p, size_t limit) {
  enum { CLASS64 = 2, NO_DATA = 8 };
  if (limit < ELF_HEADER || p[4] != CLASS64) return 0;
  uint64_t segments = number(p + 32, 8), sections = number(p + 40, 8);
  uint64_t segment = number(p + 54, 2), segments_n = number(p + 56, 2), section = number(p + 58, 2), sections_n = number(p + 60, 2);
  size_t end = ELF_HEADER;
  end_at(&end, segments, segment * segments_n);
  end_at(&end, sections, section * sections_n);
  if (end > limit || (segments_n && segments > end) || (sections_n && sections > end)) return 0;
  if ((segments_n && segment < 56) || (sections_n && section < 64)) return 0;
  for (uint64_t i = 0; i < segments_n; i++) end_at(&end, number(p + segments + i * segment + 8, 8), number(p + segments + i * segment + 32, 8));
  for (uint64_t i = 0; i < sections_n; i++) {
    const uint8_t *s = p + sections + i * section;
    if (number(s + 4, 4) != NO_DATA) end_at(&end, number(s + 24, 8), number(s + 32, 8));
  }
  return end <= limit ? end : 0;
}

const void *yr_image_of(const void *image, size_t limit) {
  if (!image || limit < WRAPPER || !begins(image, wrapperMagic)) return image;
  return (const void *)(uintptr_t)number((const uint8_t *)image + 8, 8);
}

size_t yr_image_size(const void *image, size_t limit) {
  const uint8_t *p = image;
  if (!p || !limit) return 0;
  if (limit >= 4 && begins(p, "\177ELF")) return elf(p, limit);
  if (limit >= 4 && begins(p, fatMagic)) {
    if (limit < FAT_HEADER) return 0;
    uint64_t head = number(p + 6, 2), body = number(p + 8, 8);
    return head >= FAT_HEADER && body <= most && head + body <= limit ? (size_t)(head + body) : 0;
  }
  size_t n = strnlen((const char *)p, limit < most ? limit : most);
  return n < limit ? n + 1 : 0;
}
